#include "uptrain/objective/router_balance.h"

#include <utility>

#include <ATen/TensorOperators.h>

namespace regroup {

void RouterBalance::watch() {
  layers_.clear();
  model_.set_routing_observer([this](const RouterSums& sums) { layers_.push_back(sums); });
}

at::Tensor RouterBalance::take(std::int64_t length) {
  model_.set_routing_observer({});
  const std::vector<RouterSums> layers = std::exchange(layers_, {});
  const ExpertRouting& routing = model_.spec().routing;
  return balance_loss(layers, length, routing) * routing.balance_weight;
}

bool has_balance_loss(const ModelSpec& spec) {
  return spec.routing.experts > 0 && spec.routing.balance_weight > 0.0;
}

}  // namespace regroup
