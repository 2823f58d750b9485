// Contradictions within a model: between config, tensors, index and stock loaders.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "formats/base/json.h"
#include "formats/spec/model_spec.h"
#include "formats/tensors/checkpoint.h"

namespace regroup {

/// Sentences on where the config disagrees with the tensors (kv heads, shapes, missing tensors,
/// ties to the embedding), and on what stock loaders that accept the names in `config` would
/// compute differently. `spec` must be as described by the config. Reads headers only.
std::vector<std::string> disagreements_in(const ModelSpec& spec, const Checkpoint& checkpoint,
                                          const Json& config);

/// Sentences if the index's total_size disagrees with the tensors, and if it lists tensors that no
/// file has. None without an index.
std::vector<std::string> disagreements_of_index(const std::filesystem::path& path,
                                                const Checkpoint& checkpoint);

}  // namespace regroup
