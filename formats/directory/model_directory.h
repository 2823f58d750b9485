// A model as Hugging Face lays it out: config.json, weights in one file or in indexed shards, and
// the tokenizer and other files that travel with it.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "formats/checkpoint/checkpoint.h"
#include "formats/json/json.h"

namespace regroup {

/// Longest config file that is read.
inline constexpr std::uint64_t kMaxConfigBytes = 4U << 20;

struct ModelDirectory {
  std::filesystem::path path;  ///< the directory
  std::string config_text;     ///< config.json, byte for byte
  Json config;                 ///< the same, parsed
  Checkpoint checkpoint;
  /// Files to carry along, relative to `path`; no links that lead out of it.
  std::vector<std::filesystem::path> companions;
};

/// Opens a directory that holds config.json and weights (safetensors, else torch files), or one
/// such weight file or index with config.json beside it: headers only. Throws kBadInput when there
/// is no such model, a shard is missing, or index and shards disagree.
ModelDirectory open_model_directory(const std::filesystem::path& path);

/// The same of a directory in Meta's convention, with params.json for its config.
ModelDirectory open_meta_directory(const std::filesystem::path& path);

/// Copies the companions into `destination`, an existing directory.
void copy_companions(const ModelDirectory& source, const std::filesystem::path& destination);

/// A sentence for each file that would be carried along if it were not a link out of the directory:
/// what such a link shows may be nobody's to publish.
std::vector<std::string> notes_on_companions(const ModelDirectory& source);

/// Throws kUsage when `destination` is, or lies inside, the source's directory.
void refuse_output_inside(const ModelDirectory& source, const std::filesystem::path& destination);

/// Opens the weights of a directory (in Meta's convention, too), an index, or a single file; no
/// config.json is needed. `path` may be a name in the local hub cache (formats/base/hub_cache.h).
Checkpoint open_checkpoint(const std::filesystem::path& path);

/// The index that open_checkpoint() goes by at `path`; nothing where there is none.
std::optional<std::filesystem::path> index_of_checkpoint(const std::filesystem::path& path);

/// The directory's config.json; `path` may also name a weight file or index inside it.
std::filesystem::path directory_of_model(const std::filesystem::path& path);

}  // namespace regroup
