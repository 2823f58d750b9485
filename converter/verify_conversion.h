// Whether a converted model is what its source and its recorded recipe make of it.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "converter/conversion_plan.h"
#include "formats/checkpoint_difference.h"
#include "formats/model.h"

namespace regroup {

struct Verification {
  std::uint64_t copied = 0;    ///< tensors compared with the source's, byte for byte
  std::uint64_t computed = 0;  ///< tensors compared with those computed again
  std::uint64_t bytes = 0;     ///< of both
  /// Before: as it should be; after: as it is.
  std::vector<TensorDifference> tensors;
  /// Of config, metadata or GGUF keys, slopes among them; the version of regroup left out.
  std::vector<JsonDifference> settings;

  bool passed() const { return tensors.empty() && settings.empty(); }

  std::deque<TensorInfo> expected;  ///< what tensors[].before point to
};

/// Compares all of `result` with what executing `plan` on `source` would write. Holds one tensor
/// and its sources at a time. Results of methods that solve for heads agree to the bit where the
/// same LibTorch computes them.
Verification verify_conversion(const ConversionPlan& plan, const Model& source, const Model& result,
                               const ComparisonProgress& progress);

}  // namespace regroup
