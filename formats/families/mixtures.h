// Shared by the families whose layers have experts.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "formats/spec/config_reader.h"
#include "formats/spec/model_spec.h"

namespace regroup {

/// A family's keys and defaults for how tokens are given to experts.
struct RoutingDefaults {
  std::string_view experts_key = "num_experts";
  std::int64_t experts = 0, per_token = 0;  ///< 0: the key must be present
  std::string_view balance_key = "router_aux_loss_coef";
  double balance_weight = 0.001;
};

/// Reads the number of experts, num_experts_per_tok and the factor of the load-balancing loss. The
/// experts are `intermediate_size` wide.
void read_routing(ModelSpec& spec, const ConfigReader& config, const RoutingDefaults& defaults,
                  std::int64_t intermediate_size);

/// What a family calls the parts of a layer's experts, relative to the MLP's name.
struct ExpertNames {
  std::string_view mlp = "mlp";
  std::string_view router = "gate";
  std::string_view gate = "gate_proj", up = "up_proj", down = "down_proj";  ///< of one expert
  bool always_stacked = false;
  std::string_view gate_up_of_all = "experts.gate_up_proj";  ///< [E, 2·width, D]
  std::string_view down_of_all = "experts.down_proj";        ///< [E, D, width]
};

/// Replaces the MLPs of the layers marked in `sparse` by experts: mlp.gate and
/// mlp.experts.E.{gate,up,down}_proj, or two tensors of all experts if the checkpoint has these.
void name_experts(ModelSpec& spec, const ConfigReader& config, const Checkpoint& checkpoint,
                  const std::vector<bool>& sparse, const ExpertNames& names = {});

/// Sets the tensors of the shared expert, mlp.`name`.{gate,up,down}_proj, in each layer that
/// `sparse` marks. `width`: its intermediate size.
void name_shared_expert(ModelSpec& spec, const Checkpoint& checkpoint,
                        const std::vector<bool>& sparse, std::string_view name, std::int64_t width);

}  // namespace regroup
