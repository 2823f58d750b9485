// Reads stored tensors: their bytes in parts, in row-major order, with as little memory as the
// layout allows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "formats/tensors/checkpoint.h"
#include "formats/tensors/dtype.h"

namespace regroup {

/// The most elements held in memory at a time. A multiple of every dtype's block size.
inline constexpr std::size_t kElementsAtATime = std::size_t{1} << 18;

class TensorReader {
 public:
  /// Keeps references to both. Tensors that must be reordered (strides, pieces joined along an
  /// inner dimension) are read whole by the constructor.
  TensorReader(const Checkpoint& checkpoint, const TensorInfo& tensor);

  const TensorInfo& tensor() const { return tensor_; }
  std::uint64_t bytes() const { return bytes_; }

  /// Hints that the whole tensor will be read soon.
  void start() const;

  /// Fills `out` from byte `offset` of the row-major elements.
  void read_at(std::uint64_t offset, std::span<std::byte> out) const;

 private:
  const Checkpoint& checkpoint_;
  const TensorInfo& tensor_;
  std::uint64_t bytes_;
  std::vector<ByteRange> ranges_;
  std::vector<std::byte> whole_;  // used if there are no ranges
};

/// Calls `visit` with the index of the part's first element and the part's bytes, in order, at most
/// kElementsAtATime elements per call.
void for_each_part(
    const TensorReader& reader,
    const std::function<void(std::uint64_t first, std::span<const std::byte>)>& visit);

/// Whether two tensors have the same dtype, shape and bytes. Reads them up to the first difference,
/// and not at all if they share their place in a file.
bool same_contents(const Checkpoint& checkpoint, const TensorInfo& a, const TensorInfo& b);

}  // namespace regroup
