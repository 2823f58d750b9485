#include "converter/execute/refuse_numbers.h"

#include "formats/base/error.h"
#include "formats/base/printable.h"
#include "formats/checkpoint/tensor_place.h"
#include "formats/dtype/numbers.h"
#include "formats/inspect/tensor_statistics.h"

namespace regroup {

bool may_hold_nonfinite(const OutputTensor& result, bool allow_nonfinite) {
  return allow_nonfinite && !is_block_type(result.dtype);
}

void refuse_numbers(const Checkpoint& checkpoint, const TensorInfo& source,
                    const OutputTensor& result) {
  const TensorStatistics found = statistics_of(checkpoint, source);
  const double largest = largest_number(result.dtype);
  if (!found.finite()) {
    throw_bad_input("{}: {} NaN and {} infinite of {} elements; {}", place_of(checkpoint, source),
                    found.nan, found.infinite, found.elements,
                    is_block_type(result.dtype)
                        ? fmt::format("{} holds neither, --dtype fp32 and bf16 do with "
                                      "--allow-nonfinite",
                                      name_of(result.dtype))
                        : "--allow-nonfinite converts them anyway");
  }
  if (found.largest > largest) {
    throw_bad_input("{}: holds {:.6g}, {} at most {:.6g}; --dtype bf16 or fp32 holds it",
                    place_of(checkpoint, source), found.largest, name_of(result.dtype), largest);
  }
  if (largest >= largest_number(DType::kBF16)) {
    throw_bad_input(
        "{}: tensor {}: what is computed for it is not finite; statistics of a text that hardly "
        "varies do this: take one with more different words",
        place_of(checkpoint), printable(result.name));
  }
  throw_bad_input(
      "{}: tensor {}: what is computed for it does not fit {}, which holds at most {:.6g}; --dtype "
      "bf16 or fp32 holds more",
      place_of(checkpoint), printable(result.name), name_of(result.dtype), largest);
}

}  // namespace regroup
