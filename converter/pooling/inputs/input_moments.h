// What is known of the vectors a linear map reads: their mean and how they vary around it.
#pragma once

#include <cstdint>
#include <vector>

#include "formats/checkpoint/checkpoint.h"
#include "formats/spec/model_spec.h"

namespace regroup {

/// Mean and covariance of inputs y of width D. The second moment E[yᵀy] is their sum, covariance +
/// mean·meanᵀ.
struct InputMoments {
  std::vector<double> mean;        ///< [D]
  std::vector<double> variance;    ///< [D], where the covariance is diagonal; else empty
  std::vector<double> covariance;  ///< [D, D], symmetric, where it is not; else empty

  std::int64_t width() const { return static_cast<std::int64_t>(mean.size()); }
};

/// Whose inputs: in cross-attention queries read something else than keys and values.
enum class InputSide { kQueries, kKeysAndValues };

/// The moments without any data: a norm leaves features of variance 1 that do not vary together, so
/// after its weights γ and biases β they have mean β and covariance diag(γ²). Where no norm stands
/// before the attention, mean 0 and variance 1.
InputMoments moments_after_norm(const ModelSpec& spec, AttentionRole role, std::size_t layer,
                                InputSide side, std::int64_t width, const Checkpoint& checkpoint);

}  // namespace regroup
