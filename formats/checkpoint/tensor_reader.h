// A stored tensor read piece by piece, in row-major order, in as little memory as its layout
// allows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "formats/checkpoint/checkpoint.h"

namespace regroup {

/// Most elements that are in memory at a time: whole blocks of every dtype.
inline constexpr std::size_t kElementsAtATime = std::size_t{1} << 18;

class TensorReader {
 public:
  /// Keeps references to both. What has to be put in order first (strides, pieces side by side) is
  /// read whole, now.
  TensorReader(const Checkpoint& checkpoint, const TensorInfo& tensor);

  const TensorInfo& tensor() const { return tensor_; }
  std::uint64_t bytes() const { return bytes_; }

  /// Hints that all of it will be read soon.
  void start() const;

  /// Fills `out` from byte `offset` of the row-major elements.
  void read_at(std::uint64_t offset, std::span<std::byte> out) const;

 private:
  const Checkpoint& checkpoint_;
  const TensorInfo& tensor_;
  std::uint64_t bytes_;
  std::vector<ByteRange> ranges_;
  std::vector<std::byte> whole_;  // where there are no ranges
};

/// Calls `visit` with the first element's number and all elements, in order, at most
/// kElementsAtATime of them at once.
void for_each_part(
    const TensorReader& reader,
    const std::function<void(std::uint64_t first, std::span<const std::byte>)>& visit);

}  // namespace regroup
