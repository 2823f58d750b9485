#include "uptrain/objective/router_balance.h"

#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/ops/stack.h>

namespace regroup {
namespace {

// Sums the choices over all parts. The loss is linear in the probabilities, so that it is a sum
// over parts if each has its own probabilities and the choices of all.
void choices_of_all(const SequencePart& part, std::vector<RouterSums>& layers) {
  std::vector<at::Tensor> chosen;
  for (const RouterSums& layer : layers) {
    chosen.push_back(layer.chosen);
  }
  const at::Tensor sums = part.sum(at::stack(chosen));
  for (std::size_t i = 0; i < layers.size(); ++i) {
    layers[i].chosen = sums.select(0, static_cast<std::int64_t>(i));
  }
}

}  // namespace

void RouterBalance::watch() {
  layers_.clear();
  model_.set_routing_observer([this](const RouterSums& sums) { layers_.push_back(sums); });
}

at::Tensor RouterBalance::take(std::int64_t length) {
  model_.set_routing_observer({});
  std::vector<RouterSums> layers = std::exchange(layers_, {});
  if (const SequencePart* const part = model_.sequence_part()) {
    choices_of_all(*part, layers);
  }
  const ExpertRouting& routing = model_.spec().routing;
  return balance_loss(layers, length, routing) * routing.balance_weight;
}

bool has_balance_loss(const ModelSpec& spec) {
  return spec.routing.experts > 0 && spec.routing.balance_weight > 0.0;
}

}  // namespace regroup
