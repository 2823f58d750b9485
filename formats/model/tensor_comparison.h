// Numbers of tensors: statistics, and the differences of two tensors and of two checkpoints.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/base/json.h"
#include "formats/tensors/checkpoint.h"
#include "formats/tensors/dtype.h"
#include "formats/tensors/gguf_metadata.h"
#include "formats/tensors/tensor_reader.h"

namespace regroup {

/// Of a tensor's finite elements, unless stated otherwise. All zero if the dtype cannot be read.
struct TensorStatistics {
  bool readable = true;
  std::uint64_t elements = 0;  ///< all of them
  std::uint64_t nan = 0;
  std::uint64_t infinite = 0;
  double minimum = 0.0;
  double maximum = 0.0;
  double largest = 0.0;  ///< absolute
  double norm = 0.0;     ///< root of the sum of squares

  bool finite() const { return nan == 0 && infinite == 0; }
};

/// Reads the whole tensor. `progress`, unless it is empty, receives the bytes of each part and may
/// throw. Throws kBadInput if the file has become shorter.
TensorStatistics statistics_of(const Checkpoint& checkpoint, const TensorInfo& tensor,
                               const std::function<void(std::uint64_t bytes)>& progress = {});

struct TensorComparison {
  bool same_bytes = true;  ///< implies the same dtype
  /// Whether both can be read as numbers. If not, the fields below keep their defaults.
  bool readable = true;
  std::uint64_t elements = 0;
  std::uint64_t different = 0;  ///< elements whose values differ
  double largest = 0.0;         ///< absolute difference; infinite if only one is finite
  double mean = 0.0;            ///< absolute difference
  double cosine = 1.0;          ///< 0 if exactly one of them is all zeros
};

/// Compares two tensors with the same number of elements. Identical bytes are not decoded.
/// `progress`, unless it is empty, receives the bytes of `a` in each part, and may throw.
TensorComparison compare_tensors(const TensorReader& a, const TensorReader& b,
                                 const std::function<void(std::uint64_t bytes)>& progress = {});

/// The same, comparing bytes in memory of type `dtype` with a stored tensor.
TensorComparison compare_tensors(DType dtype, std::span<const std::byte> a, const TensorReader& b);

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

/// The tensors that differ in any way, by name, layer 2 before layer 10. Tensors for which `chosen`
/// is false are skipped; an empty `chosen` skips none. Reads both in parts.
std::vector<TensorDifference> differences_between(
    const Checkpoint& before, const Checkpoint& after,
    const std::function<bool(const std::string&)>& chosen, const ComparisonProgress& progress);

/// A GGUF file's metadata as JSON.
Json json_of(const GgufMetadata& metadata);

/// The config that belongs to the weights at `path`: config.json or params.json of a directory, or
/// the metadata of a GGUF file. An empty object if there is none.
Json settings_of(const std::filesystem::path& path);

}  // namespace regroup
