// Folds a norm's weights into the linear map that reads it, see NormFold.
#pragma once

#include <span>

#include "converter/tensor_mapping/tensor_step.h"
#include "formats/checkpoint/checkpoint.h"

namespace regroup {

/// Whether all weights of the kept norm are large enough, relative to the folded norm, for an
/// accurate quotient. `offset` is added to stored norm weights.
bool can_fold(const Checkpoint& checkpoint, const NormFold& fold, double offset);

/// The numbers of one fold, read from the checkpoint; absent norms have γ = 1, β = 0.
struct FoldedNorm {
  std::vector<double> ratio;  ///< γ_from / γ_to, per input
  std::vector<double> shift;  ///< β_from − β_to·γ_from / γ_to, per input

  FoldedNorm(const Checkpoint& checkpoint, const NormFold& fold, double offset);

  /// Folds a weight [out, in] in place.
  void apply_to_weight(std::span<double> weight) const;

  /// Adds the contribution to the bias [out], given the weight [out, in] before folding.
  void apply_to_bias(std::span<double> bias, std::span<const double> weight) const;
};

}  // namespace regroup
