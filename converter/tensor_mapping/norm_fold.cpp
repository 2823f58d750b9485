#include "converter/tensor_mapping/norm_fold.h"

#include <algorithm>
#include <cmath>

#include "formats/dtype/numbers.h"

namespace regroup {
namespace {

constexpr double kLargestRatio = 1024.0;

std::vector<double> values_of(const Checkpoint& checkpoint, const std::string& name) {
  const TensorInfo& tensor = checkpoint.at(name);
  std::vector<std::byte> bytes(tensor.bytes());
  checkpoint.read(tensor, bytes);
  std::vector<double> values(static_cast<std::size_t>(tensor.elements()));
  decode_numbers(tensor.dtype, bytes, values);
  return values;
}

std::vector<double> weights_of(const Checkpoint& checkpoint, const NormTensors& norm,
                               std::size_t width, double offset) {
  if (!norm.present()) {
    return std::vector<double>(width, 1.0);
  }
  std::vector<double> weights = values_of(checkpoint, norm.weight);
  for (double& weight : weights) {
    weight += offset;
  }
  return weights;
}

std::vector<double> biases_of(const Checkpoint& checkpoint, const NormTensors& norm,
                              std::size_t width) {
  return norm.bias.empty() ? std::vector<double>(width, 0.0) : values_of(checkpoint, norm.bias);
}

}  // namespace

FoldedNorm::FoldedNorm(const Checkpoint& checkpoint, const NormFold& fold, double offset) {
  const auto width = static_cast<std::size_t>(checkpoint.at(fold.from.weight).elements());
  ratio = weights_of(checkpoint, fold.from, width, offset);
  shift = biases_of(checkpoint, fold.from, width);
  const std::vector<double> kept = weights_of(checkpoint, fold.to, width, offset);
  const std::vector<double> kept_bias = biases_of(checkpoint, fold.to, width);
  for (std::size_t i = 0; i < width; ++i) {
    ratio[i] /= kept[i];
    shift[i] -= kept_bias[i] * ratio[i];
  }
}

bool can_fold(const Checkpoint& checkpoint, const NormFold& fold, double offset) {
  const FoldedNorm folded(checkpoint, fold, offset);
  return std::all_of(folded.ratio.begin(), folded.ratio.end(),
                     [](double ratio) { return std::abs(ratio) <= kLargestRatio; });
}

void FoldedNorm::apply_to_weight(std::span<double> weight) const {
  for (std::size_t i = 0; i < weight.size(); ++i) {
    weight[i] *= ratio[i % ratio.size()];
  }
}

void FoldedNorm::apply_to_bias(std::span<double> bias, std::span<const double> weight) const {
  for (std::size_t row = 0; row < bias.size(); ++row) {
    for (std::size_t i = 0; i < shift.size(); ++i) {
      bias[row] += weight[row * shift.size() + i] * shift[i];
    }
  }
}

}  // namespace regroup
