// The request that made a result, read from its record.
#pragma once

#include <memory>

#include "converter/convert/conversion_plan.h"
#include "formats/model/model.h"

namespace regroup {

// Reconstructs the conversion request of a model from its record.

/// The request that makes `result` from `source`; with `calibration` if the pooling was calibrated.
/// In results of earlier versions a requested dtype is inferred from the tensors. If the result was
/// refitted, the request's refiner has its recipe but refuses to refine. Throws kUsage in one line
/// if nothing is recorded, if source or statistics are others, or if the recorded steps cannot be
/// recomputed: training, or features of a later version; kBadInput for a record that is damaged or
/// does not fit the source.
ConversionRequest recorded_request(const Model& source, const Model& result,
                                   std::shared_ptr<const Calibration> calibration);

}  // namespace regroup
