// The experts of one layer, with their router.
//
// Shapes: B sequences, T positions, D hidden size, E experts.
#pragma once

#include <functional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "formats/spec/model_spec.h"
#include "uptrain/model/parameters.h"
#include "uptrain/ops/expert_routing.h"

namespace regroup {

/// The parameters, in their stored layout.
struct ExpertLayer {
  at::Tensor router;                       ///< [E, D]
  std::vector<at::Tensor> gate, up, down;  ///< [out, in] of each expert, or one [E, out, in]
  bool stacked = false;
  bool fused_gate = false;  ///< `gate` is gate‖up, and `up` is empty

  bool present() const { return router.defined(); }
};

/// Observes the routing of a layer in one pass.
using RoutingObserver = std::function<void(const RouterSums&)>;

/// The experts with those tensor names; absent if they are.
ExpertLayer make_expert_layer(const ExpertTensors& names, const Parameters& parameters);

/// The weighted sum of each token's experts. x: [B, T, D] -> [B, T, D]. Calls the observer if there
/// is one.
at::Tensor run_experts(const ExpertLayer& layer, const ModelSpec& spec, const at::Tensor& x,
                       const RoutingObserver& observer);

}  // namespace regroup
