// The request a converted model was made by, out of what it records of itself.
#pragma once

#include <memory>

#include "converter/plan/conversion_plan.h"
#include "formats/model/model.h"

namespace regroup {

/// What `result` records as its conversion: the "regroup" block of its config, or its GGUF keys.
/// Null where it records none.
Json recorded_conversion(const Model& result);

/// One fact as metadata holds it: JSON, or else plain text.
Json recorded_fact(const std::string& text);

/// The request that makes `result` of `source`; `calibration` where the pooling was calibrated. In
/// results of earlier versions a dtype that was asked for is told by their tensors. Where the
/// result was refitted, the request's refiner knows its recipe but refuses to refine. Throws kUsage
/// in one line where nothing is recorded, where it was another source or other statistics, and
/// where what is recorded cannot be computed again: training, or what a later version did;
/// kBadInput for a record that is damaged or does not fit the source.
ConversionRequest recorded_request(const Model& source, const Model& result,
                                   std::shared_ptr<const Calibration> calibration);

}  // namespace regroup
