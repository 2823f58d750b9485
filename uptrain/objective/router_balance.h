// The load-balancing loss of a model with experts.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "uptrain/model/transformer.h"

namespace regroup {

/// Observes the routing of a model's layers while it computes a loss. Nothing else may set the
/// model's routing observer as long as this exists.
class RouterBalance {
 public:
  /// `model` must outlive this.
  explicit RouterBalance(Transformer& model) : model_(model) {}
  RouterBalance(const RouterBalance&) = delete;
  RouterBalance& operator=(const RouterBalance&) = delete;
  ~RouterBalance() { model_.set_routing_observer({}); }

  /// Begins to observe.
  void watch();

  /// The loss times its factor, a scalar with gradients, of the pass since watch() over sequences
  /// of `length` tokens. Ends observing. If the model computes a part of each sequence, the losses
  /// of all parts add up to that of the sequences.
  at::Tensor take(std::int64_t length);

 private:
  Transformer& model_;
  std::vector<RouterSums> layers_;
};

/// Whether training this model adds a load-balancing loss.
bool has_balance_loss(const ModelSpec& spec);

}  // namespace regroup
