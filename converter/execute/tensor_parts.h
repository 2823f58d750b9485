// Makes a tensor of moved heads part by part, in bounded memory.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "converter/tensor_mapping/tensor_step.h"
#include "formats/checkpoint/checkpoint.h"

namespace regroup {

inline constexpr std::uint64_t kPartBytes = 4U << 20;

/// Contiguous elements of the result: `length` elements of one head of a move.
struct TensorPart {
  const HeadMove* move = nullptr;
  std::size_t head = 0;    ///< of move->to
  std::int64_t begin = 0;  ///< counted from the head's first
  std::int64_t length = 0;
};

/// The parts of the result of `step`, in order; they point into it. Each is made from at most
/// `part_bytes` bytes of its source, except that heads of sub-byte or block types, heads with
/// permuted features and rows to be normalised are not split. Empty if the tensor must be made as a
/// whole: its heads are not contiguous, here or in their sources; they are computed rather than
/// moved; they are processed afterwards; or no source has more than `part_bytes`.
std::vector<TensorPart> parts_of(const TensorStep& step, const Checkpoint& checkpoint,
                                 std::uint64_t part_bytes = kPartBytes);

/// Divides each row of `row` numbers by its L2 norm, as TensorStep::unit_rows says.
void divide_by_norms(std::span<double> values, std::size_t row);

/// Bytes of the largest of these parts and of its sources.
std::uint64_t bytes_at_once(const std::vector<TensorPart>& parts, const TensorStep& step,
                            const Checkpoint& checkpoint);

/// Makes the parts in order and passes each to `sink`. Reads each element of a source once, or once
/// per copy if heads are stored several times. Calls `non_finite` with the source, before that
/// part's `sink`, if move_heads() finds non-finite numbers. Throws kBadInput if a file has become
/// shorter, and what both functions throw.
void make_parts(const std::vector<TensorPart>& parts, const TensorStep& step,
                const Checkpoint& checkpoint, const TensorSink& sink,
                const std::function<void(const TensorInfo&)>& non_finite);

}  // namespace regroup
