// Errors about numbers that a result cannot hold, naming their tensor.
#pragma once

#include "formats/checkpoint/checkpoint.h"
#include "formats/checkpoint/checkpoint_writer.h"

namespace regroup {

/// Whether a conversion may write `result` with non-finite numbers; block types cannot hold them.
bool may_hold_nonfinite(const OutputTensor& result, bool allow_nonfinite);

/// Throws kBadInput that says why `result` cannot be made from `source`. Reads its numbers again:
/// it holds NaN or infinities, or numbers out of the range of the result's type; otherwise the
/// computed values are at fault.
[[noreturn]] void refuse_numbers(const Checkpoint& checkpoint, const TensorInfo& source,
                                 const OutputTensor& result);

}  // namespace regroup
