// A tensor of moved heads, made a part at a time: in memory that does not grow with it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "converter/tensor_mapping/tensor_step.h"
#include "formats/checkpoint/checkpoint.h"

namespace regroup {

inline constexpr std::uint64_t kPartBytes = 4U << 20;

/// Elements of the result that lie side by side: `length` of those of one head of a move.
struct TensorPart {
  const HeadMove* move = nullptr;
  std::size_t head = 0;    ///< of move->to
  std::int64_t begin = 0;  ///< counted from the head's first
  std::int64_t length = 0;
};

/// The parts of the result of `step`, in order; they point into it. Each is made of at most
/// `part_bytes` bytes of its source, but for heads of types smaller than a byte or in blocks and
/// those whose features change places, which are not cut. None where the tensor is to be made as a
/// whole: its heads do not lie one behind the other, here or in their sources; they are computed
/// rather than moved; something is done to them afterwards; or no source has more than
/// `part_bytes`.
std::vector<TensorPart> parts_of(const TensorStep& step, const Checkpoint& checkpoint,
                                 std::uint64_t part_bytes = kPartBytes);

/// Bytes of the largest of these parts and of what it is made of.
std::uint64_t bytes_at_once(const std::vector<TensorPart>& parts, const TensorStep& step,
                            const Checkpoint& checkpoint);

/// Makes the parts in their order and gives each to `sink`. Each element of a source is read as
/// often as the result has it, which is once unless heads are stored several times. `non_finite` is
/// called with the source where move_heads() finds numbers that are not finite, ahead of that
/// part's `sink`. Throws kBadInput where a file has become shorter, and what both of them throw.
void make_parts(const std::vector<TensorPart>& parts, const TensorStep& step,
                const Checkpoint& checkpoint, const TensorSink& sink,
                const std::function<void(const TensorInfo&)>& non_finite);

}  // namespace regroup
