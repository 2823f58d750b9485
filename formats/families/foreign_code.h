// Code in a model's directory that regroup did not write, and that loaders may run.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "formats/base/json.h"
#include "formats/families/loader_files.h"

namespace regroup {

struct ForeignCode {
  std::string place;  ///< a file, or a file and a key in it: "config.json: auto_map.AutoModel"
  std::string code;   ///< what the key names, such as "owner/name--module.Class"; a file: empty
};

struct DirectoryCode {
  bool carried = false;  ///< whether the auto_map's classes for models are regroup's, in its files
  std::vector<ForeignCode> foreign;
};

/// The files of loader_files() that are in `directory` byte for byte.
std::vector<LoaderFile> carried_files(const std::filesystem::path& directory);

/// The code that loaders of `config` (config.json) and of `files` in `directory` may run. Only the
/// files in `carried` count as regroup's. Foreign are Python files and pickles, and what config
/// files name: classes in auto_map, custom_pipelines and modules.json, kernels of the hub,
/// trust_remote_code. Config files that cannot be read are listed, too.
DirectoryCode code_in(const Json& config, const std::filesystem::path& directory,
                      std::span<const std::filesystem::path> files,
                      std::span<const LoaderFile> carried);

/// A sentence that names foreign code; none if there is none.
std::vector<std::string> notes_on_code(const DirectoryCode& code);

}  // namespace regroup
