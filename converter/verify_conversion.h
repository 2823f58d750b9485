// Whether a converted model is what its source and its recorded recipe make of it.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "converter/conversion_plan.h"
#include "formats/checkpoint_difference.h"
#include "formats/model.h"

namespace regroup {

struct Verification {
  std::uint64_t copied = 0;    ///< tensors compared with the source's, byte for byte
  std::uint64_t computed = 0;  ///< tensors compared with those computed again
  std::uint64_t bytes = 0;     ///< of both
  std::uint64_t copied_differing = 0, computed_differing = 0;  ///< of these, those that differ
  /// Tensors that were refitted after pooling, which is not computed again: of these only shape and
  /// dtype were compared.
  std::vector<std::string> refitted;
  /// Before: as it should be; after: as it is.
  std::vector<TensorDifference> tensors;
  /// Of config, metadata or GGUF keys, slopes among them; but for the version of regroup and what
  /// it measured of layers.
  std::vector<JsonDifference> settings;

  bool passed() const { return tensors.empty() && settings.empty(); }

  std::deque<TensorInfo> expected;  ///< what tensors[].before point to
};

/// Compares all of `result` with what executing `plan` on `source` would write, but for what the
/// plan's refiner would change. Holds one tensor and its sources at a time. Results of methods that
/// solve for heads agree to the bit where the same LibTorch computes them.
Verification verify_conversion(const ConversionPlan& plan, const Model& source, const Model& result,
                               const ComparisonProgress& progress);

}  // namespace regroup
