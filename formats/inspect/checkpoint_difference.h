// Compares two checkpoints: tensors by name, and configs.
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
  /// Set if both have the same shape.
  std::optional<TensorComparison> values;

  bool changed_shape() const { return before && after && before->shape != after->shape; }
  bool changed_dtype() const { return before && after && before->dtype != after->dtype; }
};

/// Called after each part, unless it is empty: bytes of `before` compared so far, and the tensor.
/// May throw.
using ComparisonProgress = std::function<void(std::uint64_t bytes, std::string_view tensor)>;

/// The tensors that differ in any way, in the order of `before`, then added ones. Tensors for which
/// `chosen` is false are skipped; an empty `chosen` skips none. Reads both in parts.
std::vector<TensorDifference> differences_between(
    const Checkpoint& before, const Checkpoint& after,
    const std::function<bool(const std::string&)>& chosen, const ComparisonProgress& progress);

/// A GGUF file's metadata as JSON.
Json json_of(const GgufMetadata& metadata);

/// The config that belongs to the weights at `path`: config.json or params.json of a directory, or
/// the metadata of a GGUF file. An empty object if there is none.
Json settings_of(const std::filesystem::path& path);

}  // namespace regroup
