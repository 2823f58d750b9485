// The input of an encoder that reads spectra: two convolutions over time.
#pragma once

#include <ATen/core/Tensor.h>

#include "formats/spec/model_spec.h"
#include "uptrain/model/parameters.h"

namespace regroup {

/// Radford et al. 2022, section 2.2, https://arxiv.org/abs/2212.04356
class SpectrumConvolutions {
 public:
  SpectrumConvolutions() = default;
  /// Empty if the model has none.
  SpectrumConvolutions(const ModelSpec& spec, const Parameters& parameters);

  bool present() const { return first_.defined(); }

  /// features: [B, bands, 2·S], where S is the number of the encoder's positions -> [B, S, D], in
  /// the weights' dtype. Throws kUsage for another shape and for token ids.
  at::Tensor operator()(const at::Tensor& features) const;

 private:
  at::Tensor first_, first_bias_, second_, second_bias_;  // weights [D, bands, 3] and [D, D, 3]
  std::int64_t positions_ = 0;
};

}  // namespace regroup
