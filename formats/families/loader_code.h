// The Python code that a result carries for stock loaders, where loaders would misread it, and
// code in a model's directory that regroup did not write.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "formats/base/json.h"
#include "formats/families/loader_files.h"
#include "formats/spec/model_spec.h"

namespace regroup {

// Where stock loaders would compute something different from regroup, because they derive it from
// the config and the head index while regroup uses recorded values.

/// Sentences about what a stock loader would derive differently from `spec`: ALiBi slopes, from the
/// family's formula. Empty if there is no difference.
std::vector<std::string> derived_otherwise(const ModelSpec& spec);

/// The same, but also empty if the names in `config` prevent stock loaders from loading the model.
/// Always empty for results that regroup writes, because of keep_from_stock_loaders().
std::vector<std::string> misread_by_loaders(const ModelSpec& spec, const Json& config);

// The Python code by which transformers loads results whose kv heads its own classes do not
// support.

struct LoaderCode {
  Json auto_map;                  ///< for config.json: "AutoModel" and the like to "module.Class"
  std::vector<LoaderFile> files;  ///< to be written next to it; the family's is the last
};

/// The code for the model of `config` (after renaming, see with_alibi_names()) and `spec`. Nothing
/// if there is none for its family, if it would compute something different from `spec`, or if only
/// heads that differ between layers need it.
std::optional<LoaderCode> loader_code_for(const Json& config, const ModelSpec& spec);

/// Whether the auto_map of `config` names such code: a module of loader_files(), in the directory
/// or in a repository. Whether the directory has it, code_in() says.
bool has_loader_code(const Json& config);

/// Whether its auto_map names other code for models or configs: the model's own.
bool has_own_code(const Json& config);

/// `config_text` with the code's auto_map in place of all entries for models and configs. Entries
/// for other things, such as the tokenizer, stay.
std::string with_loader_code(const std::string& config_text, const LoaderCode& code);

/// `config_text` without entries for such code, and with the architecture's own name, which
/// transformers replaces by the name of the code's class when it saves a model.
std::string without_loader_code(const std::string& config_text);

// Code in a model's directory that regroup did not write, and that loaders may run.

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
