// What two checkpoints have in common and what not: tensors by name, and what their configs say.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/checkpoint/checkpoint.h"
#include "formats/gguf/gguf_metadata.h"
#include "formats/inspect/tensor_comparison.h"
#include "formats/json/json_difference.h"

namespace regroup {

struct TensorDifference {
  std::string name;
  const TensorInfo* before = nullptr;  ///< null: added
  const TensorInfo* after = nullptr;   ///< null: removed
  /// Where both have one shape.
  std::optional<TensorComparison> values;

  bool changed_shape() const { return before && after && before->shape != after->shape; }
  bool changed_dtype() const { return before && after && before->dtype != after->dtype; }
};

/// Called after each part: bytes of `before` compared so far, and the tensor. May throw.
using ComparisonProgress = std::function<void(std::uint64_t bytes, std::string_view tensor)>;

/// Tensors that differ in any way, in the order of `before`, then those that are new. Those that
/// `chosen` refuses are left out. Reads both, part by part.
std::vector<TensorDifference> differences_between(
    const Checkpoint& before, const Checkpoint& after,
    const std::function<bool(const std::string&)>& chosen, const ComparisonProgress& progress);

/// A GGUF file's keys and values.
Json json_of(const GgufMetadata& metadata);

/// What stands beside the tensors at `path`: the config.json or params.json of a directory; of a
/// GGUF file its keys and values. An empty object where there is none.
Json settings_of(const std::filesystem::path& path);

}  // namespace regroup
