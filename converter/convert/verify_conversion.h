// Verifies a result: the request that made it, from its record, and a comparison with what that
// would make.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "converter/convert/conversion_plan.h"
#include "formats/model/model.h"
#include "formats/model/tensor_comparison.h"

namespace regroup {

/// The request that makes `result` from `source`; with `calibration` if the pooling was calibrated.
/// In results of earlier versions a requested dtype is inferred from the tensors. If the result was
/// refitted, the request's refiner has its recipe but refuses to refine. Throws kUsage in one line
/// if nothing is recorded, if source or statistics are others, or if the recorded steps cannot be
/// recomputed: training, or features of a later version; kBadInput for a record that is damaged or
/// does not fit the source.
ConversionRequest recorded_request(const Model& source, const Model& result,
                                   std::shared_ptr<const Calibration> calibration);

struct Verification {
  std::uint64_t copied = 0;    ///< tensors compared with the source's, byte for byte
  std::uint64_t computed = 0;  ///< tensors compared with recomputed ones
  std::uint64_t bytes = 0;     ///< of all compared tensors
  std::uint64_t copied_differing = 0, computed_differing = 0;  ///< of these, different ones
  /// Tensors that were refitted after pooling, or solved for on another device than the CPU, which
  /// is not recomputed: compared with their recorded checksums.
  std::vector<std::string> trained;
  std::uint64_t trained_differing = 0;
  /// Notes for the user on the record: missing parts, another version.
  std::vector<std::string> remarks;
  /// Before: expected; after: actual.
  std::vector<TensorDifference> tensors;
  /// Differences of config, metadata or GGUF keys, including slopes and the source's fingerprint
  /// but not measurements of layers. The version need not be this one, only the same in all places.
  std::vector<JsonDifference> settings;

  bool passed() const { return tensors.empty() && settings.empty(); }

  std::deque<TensorInfo> expected;  ///< targets of tensors[].before
};

/// Compares all of `result` with what executing `plan` on `source` would write, and tensors that
/// are not recomputed with their checksums. Throws kBadInput for an invalid record. Holds one
/// tensor and its sources at a time. Results of methods that solve for heads are bitwise equal if
/// the same LibTorch computes them.
Verification verify_conversion(const ConversionPlan& plan, const Model& source, const Model& result,
                               const ComparisonProgress& progress);

}  // namespace regroup
