
#include <fmt/format.h>

#include "formats/base/error.h"
#include "formats/base/printable.h"
#include "formats/base/ranges.h"
#include "formats/families/families.h"
#include "formats/spec/config_reader.h"

namespace regroup {

namespace {

constexpr std::int64_t kMaxExperts = 1 << 14;

// A family's keys and defaults for how tokens are given to experts.
struct RoutingDefaults {
  std::string_view experts_key = "num_experts";
  std::int64_t experts = 0, per_token = 0;  // 0: the key must be present
  std::string_view balance_key = "router_aux_loss_coef";
  double balance_weight = 0.001;
};

// What a family calls the parts of a layer's experts, relative to the MLP's name.
struct ExpertNames {
  std::string_view mlp = "mlp";
  std::string_view router = "gate";
  std::string_view gate = "gate_proj", up = "up_proj", down = "down_proj";  // of one expert
  bool always_stacked = false;
  std::string_view gate_up_of_all = "experts.gate_up_proj";  // [E, 2·width, D]
  std::string_view down_of_all = "experts.down_proj";        // [E, D, width]
};

// One tensor per expert must be in the checkpoint before so many names are made.
void check_expert_count(const ModelSpec& spec, const ModelConfig& config, std::int64_t layers) {
  const std::int64_t tensors = std::ssize(config.checkpoint.tensors());
  if (!config.to_be_made() && spec.routing.experts * layers > tensors) {
    throw_bad_input("{}: {} experts in {} layers, but the checkpoint has only {} tensors",
                    config.where(), spec.routing.experts, layers, tensors);
  }
}

// Whether the checkpoint has two tensors with all experts of the layer with that MLP.
bool are_stacked(const ModelConfig& config, const std::string& mlp, const ExpertNames& names) {
  return names.always_stacked || config.stores(fmt::format("{}.{}", mlp, names.gate_up_of_all));
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

// Reads the number of experts, num_experts_per_tok and the factor of the load-balancing loss. The
// experts are `intermediate_size` wide.
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

// Replaces the MLPs of the layers marked in `sparse` by experts: mlp.gate and
// mlp.experts.E.{gate,up,down}_proj, or two tensors of all experts if the checkpoint has these.
void name_experts(ModelSpec& spec, const ModelConfig& config, const std::vector<bool>& sparse,
                  const ExpertNames& names = {}) {
  const auto mlp_of = [&](std::size_t layer) {
    return fmt::format("{}.{}", llama_layer_name(config, layer), names.mlp);
  };
  std::int64_t separate = 0;  // layers with a tensor per expert
  for (std::size_t i = 0; i < spec.layers.size(); ++i) {
    separate += sparse[i] && !are_stacked(config, mlp_of(i), names) ? 1 : 0;
  }
  check_expert_count(spec, config, separate);
  for (std::size_t i = 0; i < spec.layers.size(); ++i) {
    LayerTensors& layer = spec.layers[i];
    if (sparse[i]) {
      layer.gate = layer.up = layer.down = {};
      layer.experts =
          experts_at(mlp_of(i), names, spec.routing.experts, are_stacked(config, mlp_of(i), names));
    }
  }
}

// Sets the tensors of the shared expert, mlp.`name`.{gate,up,down}_proj, in each layer that
// `sparse` marks. `width`: its intermediate size.
void name_shared_expert(ModelSpec& spec, const ModelConfig& config, const std::vector<bool>& sparse,
                        std::string_view name, std::int64_t width) {
  for (std::size_t i = 0; i < spec.layers.size(); ++i) {
    if (sparse[i]) {
      const std::string shared = fmt::format("{}.mlp.{}.", llama_layer_name(config, i), name);
      LayerTensors& layer = spec.layers[i];
      layer.gate = linear_at(shared + "gate_proj", false);
      layer.up = linear_at(shared + "up_proj", false);
      layer.down = linear_at(shared + "down_proj", false);
      layer.intermediate_size = width;
    }
  }
}

// Mixtures of experts with Llama's attention: OLMoE, Qwen2-MoE, Qwen3-MoE, Mixtral, GraniteMoE,
// DeepSeek-MoE.

std::vector<bool> all_layers(const ModelSpec& spec) {
  return std::vector<bool>(spec.layers.size(), true);
}

// Qwen's layers with experts: every decoder_sparse_step-th, except those in mlp_only_layers.
std::vector<bool> qwen_sparse_layers(const ModelSpec& spec, const ConfigReader& config) {
  const auto step =
      static_cast<std::size_t>(config.optional_count({"decoder_sparse_step"}).value_or(1));
  const Json* dense = config.find("mlp_only_layers");
  if (dense != nullptr && !dense->is_array()) {
    throw_bad_input("{}: mlp_only_layers must list numbers of layers", config.where());
  }
  std::vector<bool> sparse(spec.layers.size());
  for (std::size_t i = 0; i < sparse.size(); ++i) {
    const bool listed = dense != nullptr && contains(*dense, Json(i));
    sparse[i] = !listed && (i + 1) % step == 0;
  }
  return sparse;
}

// Adds the experts of Qwen's models.
std::vector<bool> add_qwen_experts(ModelSpec& spec, const ModelConfig& config,
                                   const RoutingDefaults& defaults, std::int64_t default_width) {
  read_routing(spec, config, defaults,
               config.optional_count({"moe_intermediate_size"}).value_or(default_width));
  spec.routing.normalised = config.flag_or({"norm_topk_prob"}, false);
  std::vector<bool> sparse = qwen_sparse_layers(spec, config);
  name_experts(spec, config, sparse);
  return sparse;
}

// Mixtral's files say block_sparse_moe; transformers 5 calls the same module mlp.
ExpertNames mixtral_names(const ModelConfig& config) {
  ExpertNames names{.mlp = "block_sparse_moe", .gate = "w1", .up = "w3", .down = "w2"};
  if (config.stores(llama_layer_name(config, 0) + ".mlp.gate.weight")) {
    names.mlp = "mlp";
  }
  return names;
}

// GraniteMoE's files have input_linear and output_linear; transformers 5 renames them.
ExpertNames granite_names(const ModelConfig& config) {
  const std::string renamed =
      llama_layer_name(config, 0) + ".block_sparse_moe.experts.gate_up_proj";
  if (config.stores(renamed)) {
    return {.mlp = "block_sparse_moe", .router = "router", .always_stacked = true};
  }
  return {.mlp = "block_sparse_moe",
          .router = "router.layer",
          .always_stacked = true,
          .gate_up_of_all = "input_linear.weight",
          .down_of_all = "output_linear.weight"};
}

// DeepSeek-MoE's layers with experts.
std::vector<bool> deepseek_sparse_layers(const ModelSpec& spec, const ConfigReader& config) {
  const double dense = config.number_or({"first_k_dense_replace"}, 0.0);
  const auto step = static_cast<std::size_t>(config.optional_count({"moe_layer_freq"}).value_or(1));
  std::vector<bool> sparse(spec.layers.size());
  for (std::size_t i = 0; i < sparse.size(); ++i) {
    sparse[i] = static_cast<double>(i) >= dense && i % step == 0;
  }
  return sparse;
}

}  // namespace

ModelSpec describe_olmoe(const ModelConfig& config) {
  ModelSpec spec = describe_llama_like(config, {}, /*default_epsilon=*/1e-5);
  spec.clip_qkv = config.optional_number({"clip_qkv"});
  name_llama_tensors(spec, config, llama_biases(config));
  add_qk_norms(spec, config, QkNorm::kProjection);
  read_routing(spec, config, {.experts = 64, .per_token = 8, .balance_weight = 0.01},
               spec.intermediate_size);
  spec.routing.normalised = config.flag_or({"norm_topk_prob"}, false);
  name_experts(spec, config, all_layers(spec));
  return spec;
}

ModelSpec describe_qwen2_moe(const ModelConfig& config) {
  ModelSpec spec = describe_llama_like(config, {.kv_heads = 16});
  read_qwen_window(spec, config);
  if (config.flag_or({"use_sliding_window"}, false) && config.find("layer_types") == nullptr) {
    spec.not_computable = "use_sliding_window without layer_types";
  }
  name_llama_tensors(spec, config, {.qkv = config.flag_or({"qkv_bias"}, true)});
  const std::vector<bool> sparse =
      add_qwen_experts(spec, config, {.experts = 60, .per_token = 4}, 1408);
  name_shared_expert(spec, config, sparse, "shared_expert",
                     config.optional_count({"shared_expert_intermediate_size"}).value_or(5632));
  for (std::size_t i = 0; i < sparse.size(); ++i) {
    if (sparse[i]) {
      spec.layers[i].shared_gate =
          linear_at(llama_layer_name(config, i) + ".mlp.shared_expert_gate", false);
    }
  }
  return spec;
}

ModelSpec describe_qwen3_moe(const ModelConfig& config) {
  ModelSpec spec = describe_llama_like(config, {.kv_heads = 4});
  // Unlike in Qwen3, all layers have the window or none.
  if (config.flag_or({"use_sliding_window"}, false)) {
    read_sliding_window(spec, config);
  }
  name_llama_tensors(spec, config, llama_biases(config));
  add_qk_norms(spec, config, QkNorm::kSharedAcrossHeads);
  add_qwen_experts(spec, config, {.experts = 128, .per_token = 8}, 768);
  return spec;
}

ModelSpec describe_mixtral(const ModelConfig& config) {
  ModelSpec spec = describe_llama_like(config, {.kv_heads = 8},
                                       /*default_epsilon=*/1e-5, {.theta = 1000000.0});
  spec.sliding_window = config.optional_count({"sliding_window"});
  name_llama_tensors(spec, config, {});
  read_routing(spec, config, {.experts_key = "num_local_experts", .experts = 8, .per_token = 2},
               spec.intermediate_size);
  spec.routing.normalised = true;
  name_experts(spec, config, all_layers(spec), mixtral_names(config));
  return spec;
}

ModelSpec describe_granitemoe(const ModelConfig& config) {
  ModelSpec spec = describe_granite(config);
  read_routing(spec, config, {.experts_key = "num_local_experts", .experts = 8, .per_token = 2},
               spec.intermediate_size);
  spec.routing.normalised = true;
  name_experts(spec, config, all_layers(spec), granite_names(config));
  return spec;
}

ModelSpec describe_deepseek(const ModelConfig& config) {
  ModelSpec spec = describe_llama_like(config, {});
  BlockBiases biases = llama_biases(config);
  biases.mlp = false;
  name_llama_tensors(spec, config, biases);
  if (config.find("n_routed_experts") == nullptr) {
    return spec;
  }
  if (const std::string scores = config.text_or({"scoring_func"}, "softmax"); scores != "softmax") {
    spec.not_computable = "scoring_func " + printable(scores);
  }
  const std::int64_t width = config.optional_count({"moe_intermediate_size"}).value_or(1407);
  read_routing(spec, config, {.experts_key = "n_routed_experts", .balance_key = "aux_loss_alpha"},
               width);
  spec.routing.normalised = config.flag_or({"norm_topk_prob"}, false) && spec.routing.per_token > 1;
  spec.routing.balance = config.flag_or({"seq_aux"}, true) ? ExpertRouting::Balance::kEachSequence
                                                           : ExpertRouting::Balance::kEachLayer;
  const std::vector<bool> sparse = deepseek_sparse_layers(spec, config);
  name_experts(spec, config, sparse);
  if (const auto shared = config.optional_count({"n_shared_experts"})) {
    name_shared_expert(spec, config, sparse, "shared_experts", width * *shared);
  }
  return spec;
}

}  // namespace regroup
