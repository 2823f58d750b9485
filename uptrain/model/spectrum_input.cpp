#include "uptrain/model/spectrum_input.h"

#include <ATen/ops/conv1d.h>

#include "formats/base/error.h"
#include "uptrain/model/layers.h"

namespace regroup {

SpectrumConvolutions::SpectrumConvolutions(const ModelSpec& spec, const Parameters& parameters) {
  if (spec.spectrum.present()) {
    first_ = parameters.at(spec.spectrum.first.weight);
    first_bias_ = parameters.at(spec.spectrum.first.bias);
    second_ = parameters.at(spec.spectrum.second.weight);
    second_bias_ = parameters.at(spec.spectrum.second.bias);
    positions_ = spec.spectrum.positions;
  }
}

at::Tensor SpectrumConvolutions::operator()(const at::Tensor& features) const {
  if (features.dim() != 3 || features.size(1) != first_.size(1) ||
      features.size(2) != 2 * positions_) {
    throw_usage("the encoder reads spectra of {} bands and {} frames", first_.size(1),
                2 * positions_);
  }
  // This activation is always GELU, whatever that of the blocks is.
  const auto gelu = [](const at::Tensor& x) { return activate(Activation::kGeluErf, x); };
  const at::Tensor x = gelu(at::conv1d(features, first_, first_bias_, 1, 1));
  return gelu(at::conv1d(x, second_, second_bias_, 2, 1)).transpose(1, 2);
}

}  // namespace regroup
