#include "formats/families/expert_layout.h"

#include <algorithm>

#include <fmt/format.h>

#include "formats/base/error.h"
#include "formats/config/decoder_sizes.h"
#include "formats/families/llama_layout.h"

namespace regroup {
namespace {

constexpr std::int64_t kMaxExperts = 1 << 14;

// One tensor per expert must be in the checkpoint before so many names are made.
void check_expert_count(const ModelSpec& spec, const ConfigReader& config,
                        const Checkpoint& checkpoint, std::int64_t layers) {
  const auto tensors = static_cast<std::int64_t>(checkpoint.tensors().size());
  const bool to_be_made = checkpoint.files().empty() && tensors == 0;
  if (!to_be_made && spec.routing.experts * layers > tensors) {
    throw_bad_input("{}: {} experts in {} layers, but the checkpoint has only {} tensors",
                    config.where(), spec.routing.experts, layers, tensors);
  }
}

// Whether the checkpoint has two tensors with all experts of the layer with that MLP.
bool are_stacked(const Checkpoint& checkpoint, const std::string& mlp, const ExpertNames& names) {
  return names.always_stacked ||
         checkpoint.find(fmt::format("{}.{}", mlp, names.gate_up_of_all)) != nullptr;
}

ExpertTensors experts_at(const std::string& mlp, const ExpertNames& names, std::int64_t count,
                         bool stacked) {
  ExpertTensors experts;
  experts.router = fmt::format("{}.{}.weight", mlp, names.router);
  experts.stacked = stacked;
  if (stacked) {
    experts.gate = experts.up = {fmt::format("{}.{}", mlp, names.gate_up_of_all)};
    experts.down = {fmt::format("{}.{}", mlp, names.down_of_all)};
    return experts;
  }
  for (std::int64_t i = 0; i < count; ++i) {
    const std::string expert = fmt::format("{}.experts.{}.", mlp, i);
    experts.gate.push_back(fmt::format("{}{}.weight", expert, names.gate));
    experts.up.push_back(fmt::format("{}{}.weight", expert, names.up));
    experts.down.push_back(fmt::format("{}{}.weight", expert, names.down));
  }
  return experts;
}

}  // namespace

void read_routing(ModelSpec& spec, const ConfigReader& config, const RoutingDefaults& defaults,
                  std::int64_t intermediate_size) {
  const auto count = [&](ConfigReader::Keys keys, std::int64_t absent) {
    return absent > 0 ? config.optional_count(keys).value_or(absent) : config.count(keys);
  };
  ExpertRouting& routing = spec.routing;
  // transformers saves either of the last two for most families.
  routing.experts =
      count({defaults.experts_key, "num_experts", "num_local_experts"}, defaults.experts);
  routing.per_token = count({"num_experts_per_tok"}, defaults.per_token);
  routing.intermediate_size = intermediate_size;
  if (routing.experts > kMaxExperts || routing.per_token > routing.experts) {
    throw_bad_input("{}: {} of {} experts per token, allowed are at most all of {}", config.where(),
                    routing.per_token, routing.experts, kMaxExperts);
  }
  routing.balance_weight = config.number_or({defaults.balance_key}, defaults.balance_weight);
  if (routing.balance_weight < 0.0) {
    throw_bad_input("{}: {} is {}, allowed is 0 or more", config.where(), defaults.balance_key,
                    routing.balance_weight);
  }
}

void name_experts(ModelSpec& spec, const ConfigReader& config, const Checkpoint& checkpoint,
                  const std::vector<bool>& sparse, const ExpertNames& names) {
  const auto mlp_of = [&](std::size_t layer) {
    return fmt::format("{}.{}", llama_layer_name(checkpoint, static_cast<std::int64_t>(layer)),
                       names.mlp);
  };
  std::int64_t separate = 0;  // layers with a tensor per expert
  for (std::size_t i = 0; i < spec.layers.size(); ++i) {
    separate += sparse[i] && !are_stacked(checkpoint, mlp_of(i), names) ? 1 : 0;
  }
  check_expert_count(spec, config, checkpoint, separate);
  for (std::size_t i = 0; i < spec.layers.size(); ++i) {
    LayerTensors& layer = spec.layers[i];
    if (sparse[i]) {
      layer.gate = layer.up = layer.down = {};
      layer.experts = experts_at(mlp_of(i), names, spec.routing.experts,
                                 are_stacked(checkpoint, mlp_of(i), names));
    }
  }
}

void name_shared_expert(ModelSpec& spec, const Checkpoint& checkpoint,
                        const std::vector<bool>& sparse, std::string_view name,
                        std::int64_t width) {
  for (std::size_t i = 0; i < spec.layers.size(); ++i) {
    if (sparse[i]) {
      const std::string shared = fmt::format(
          "{}.mlp.{}.", llama_layer_name(checkpoint, static_cast<std::int64_t>(i)), name);
      LayerTensors& layer = spec.layers[i];
      layer.gate = linear_at(shared + "gate_proj", false);
      layer.up = linear_at(shared + "up_proj", false);
      layer.down = linear_at(shared + "down_proj", false);
      layer.intermediate_size = width;
    }
  }
}

}  // namespace regroup
