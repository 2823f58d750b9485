// The request a converted model was made by, out of what it records of itself.
#pragma once

#include <memory>

#include "converter/conversion_plan.h"
#include "formats/model.h"

namespace regroup {

/// What `result` records as its conversion: the "regroup" block of its config, or its GGUF keys.
/// Null where it records none.
Json recorded_conversion(const Model& result);

/// The request that makes `result` of `source`; `calibration` where the pooling was calibrated. A
/// dtype that was asked for is told by the result's tensors. Throws kUsage in one line where
/// nothing is recorded, where it was another source, and where what is recorded cannot be computed
/// again: training, refits, or what a later version did.
ConversionRequest recorded_request(const Model& source, const Model& result,
                                   std::shared_ptr<const Calibration> calibration);

}  // namespace regroup
