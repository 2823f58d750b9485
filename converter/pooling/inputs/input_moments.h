// Mean and covariance of the inputs of a linear map.
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
  std::vector<double> variance;    ///< [D] if the covariance is diagonal; else empty
  std::vector<double> covariance;  ///< [D, D], symmetric, if it is not; else empty

  std::int64_t width() const { return static_cast<std::int64_t>(mean.size()); }
};

/// Which inputs: in cross-attention queries have other inputs than keys and values.
enum class InputSide { kQueries, kKeysAndValues };

/// The moments assumed without data: a norm produces uncorrelated features of variance 1, so after
/// its weights γ and biases β they have mean β and covariance diag(γ²). Without a norm before the
/// attention: mean 0 and variance 1.
InputMoments moments_after_norm(const ModelSpec& spec, AttentionRole role, std::size_t layer,
                                InputSide side, std::int64_t width, const Checkpoint& checkpoint);

}  // namespace regroup
