// Folding a norm's weights into the linear map that reads it, see NormFold.
#pragma once

#include <span>

#include "converter/tensor_mapping/tensor_step.h"
#include "formats/checkpoint/checkpoint.h"

namespace regroup {

/// Whether no weight of the norm to be kept is so small beside the folded one that the quotient
/// would spoil the result. `offset` is added to stored norm weights.
bool can_fold(const Checkpoint& checkpoint, const NormFold& fold, double offset);

/// The numbers of one fold, read from the checkpoint; absent norms have γ = 1, β = 0.
struct FoldedNorm {
  std::vector<double> ratio;  ///< γ_from / γ_to, per input
  std::vector<double> shift;  ///< β_from − β_to·γ_from / γ_to, per input

  FoldedNorm(const Checkpoint& checkpoint, const NormFold& fold, double offset);

  /// Folds a weight [out, in] in place.
  void apply_to_weight(std::span<double> weight) const;

  /// Adds what the bias [out] gains, given the weight [out, in] before it was folded.
  void apply_to_bias(std::span<double> bias, std::span<const double> weight) const;
};

}  // namespace regroup
