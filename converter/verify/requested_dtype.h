// The dtype that a recorded conversion requested.
#pragma once

#include <optional>

#include "converter/plan/conversion_plan.h"
#include "formats/model/model.h"

namespace regroup {

/// The dtype in `facts`, the conversion record of `result`; none if no dtype was requested. Earlier
/// versions did not record it. It is then inferred from the tensors and `request`, which holds the
/// rest of the request. Throws kBadInput for a recorded value that is no dtype of a result.
std::optional<DType> requested_dtype(const ConversionRequest& request, const Json& facts,
                                     const Model& source, const Model& result);

}  // namespace regroup
