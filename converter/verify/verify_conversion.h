// Whether a converted model is what its source and its recorded recipe make of it.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "converter/plan/conversion_plan.h"
#include "formats/inspect/checkpoint_difference.h"
#include "formats/model/model.h"

namespace regroup {

struct Verification {
  std::uint64_t copied = 0;    ///< tensors compared with the source's, byte for byte
  std::uint64_t computed = 0;  ///< tensors compared with those computed again
  std::uint64_t bytes = 0;     ///< of all that were compared
  std::uint64_t copied_differing = 0, computed_differing = 0;  ///< of these, those that differ
  /// Tensors that were refitted after pooling, which is not computed again: compared with the
  /// checksums that were recorded when they were written.
  std::vector<std::string> refitted;
  std::uint64_t refitted_differing = 0;
  /// Of these, those without a recorded checksum: only shape and dtype were compared.
  std::vector<std::string> unchecked;
  /// What a user should know of the record: what it lacks, and another version.
  std::vector<std::string> remarks;
  /// Before: as it should be; after: as it is.
  std::vector<TensorDifference> tensors;
  /// Of config, metadata or GGUF keys, slopes and the source's fingerprint among them; but for what
  /// was measured of layers. The version need not be this one, only the same in all places.
  std::vector<JsonDifference> settings;

  bool passed() const { return tensors.empty() && settings.empty(); }

  std::deque<TensorInfo> expected;  ///< what tensors[].before point to
};

/// Compares all of `result` with what executing `plan` on `source` would write, and what the plan's
/// refiner changed with its checksums. Throws kBadInput for a record that is none. Holds one tensor
/// and its sources at a time. Results of methods that solve for heads agree to the bit where the
/// same LibTorch computes them.
Verification verify_conversion(const ConversionPlan& plan, const Model& source, const Model& result,
                               const ComparisonProgress& progress);

}  // namespace regroup
