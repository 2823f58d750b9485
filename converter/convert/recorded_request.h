// The request that made a result, read from its record.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "converter/convert/conversion_plan.h"
#include "formats/base/json.h"
#include "formats/model/model.h"

namespace regroup {

// Facts of a conversion's record. Functions throw kBadInput, prefixed with `where`, for facts of
// another type.

/// A word, such as a method's name; `usual` if the record has none.
std::string recorded_word(const Json& facts, const char* key, const std::string& usual,
                          const std::string& where);

/// The seed of random pooling; 0 if the record has none.
std::uint64_t recorded_seed(const Json& facts, const std::string& where);

/// The kind of device that solved for heads, as LibTorch names it; "cpu" if the record has none.
std::string recorded_device(const Json& facts, const std::string& where);

// The dtype that a recorded conversion requested.

/// The dtype in `facts`, the conversion record of `result`; none if no dtype was requested. Earlier
/// versions did not record it. It is then inferred from the tensors and `request`, which holds the
/// rest of the request. Throws kBadInput for a recorded value that is no dtype of a result.
std::optional<DType> requested_dtype(const ConversionRequest& request, const Json& facts,
                                     const Model& source, const Model& result);

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
