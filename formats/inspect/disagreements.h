// What of a model says one thing where something else says another: found in headers alone.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "formats/checkpoint/checkpoint.h"
#include "formats/json/json.h"
#include "formats/spec/model_spec.h"

namespace regroup {

/// Sentences: the config's kv heads against the tensors' shapes, and what stock loaders that take
/// the names in `config` would compute otherwise. `spec` is as the config has it.
std::vector<std::string> disagreements_in(const ModelSpec& spec, const Checkpoint& checkpoint,
                                          const Json& config);

/// The index's total_size against the tensors there are; nothing where they agree, or without one.
std::optional<std::string> disagreement_of_index(const std::filesystem::path& path,
                                                 const Checkpoint& checkpoint);

/// Tensors that stand beside the embedding in its shape, tied to it and so of no use, but hold
/// other numbers. Reads them.
std::vector<std::string> disagreements_of_ties(const ModelSpec& spec, const Checkpoint& checkpoint);

}  // namespace regroup
