// Errors about numbers that a result cannot hold, by the tensor they stand in.
#pragma once

#include "formats/checkpoint/checkpoint.h"
#include "formats/checkpoint/checkpoint_writer.h"

namespace regroup {

/// Whether a conversion may write `result` although some of its numbers are not finite: types of
/// blocks hold none such.
bool may_hold_nonfinite(const OutputTensor& result, bool allow_nonfinite);

/// Says why `result` cannot be made of `source`, whose numbers it looks at once more: NaN and
/// infinities in it, numbers beyond what the result's type holds, or, where it has neither, what
/// was computed of it. Throws kBadInput.
[[noreturn]] void refuse_numbers(const Checkpoint& checkpoint, const TensorInfo& source,
                                 const OutputTensor& result);

}  // namespace regroup
