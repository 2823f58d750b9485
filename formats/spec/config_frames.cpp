#include <algorithm>
#include <functional>

#include "formats/spec/config_writers.h"

namespace regroup {
namespace {

bool same_in_all_layers(const ModelSpec& spec) {
  return std::adjacent_find(spec.kv_heads.begin(), spec.kv_heads.end(), std::not_equal_to<>()) ==
         spec.kv_heads.end();
}

Json scaling_json(const ModelSpec& spec) {
  const RopeScaling& scaling = spec.rope.scaling;
  switch (scaling.kind) {
    case RopeScaling::Kind::kNone: return nullptr;
    case RopeScaling::Kind::kLinear: return {{"rope_type", "linear"}, {"factor", scaling.factor}};
    case RopeScaling::Kind::kDynamic: return {{"rope_type", "dynamic"}, {"factor", scaling.factor}};
    case RopeScaling::Kind::kLlama3:
      return {{"rope_type", "llama3"},
              {"factor", scaling.factor},
              {"low_freq_factor", scaling.low_frequency_factor},
              {"high_freq_factor", scaling.high_frequency_factor},
              {"original_max_position_embeddings",
               static_cast<std::int64_t>(scaling.original_positions)}};
    case RopeScaling::Kind::kYarn:
      return {{"rope_type", "yarn"},
              {"factor", scaling.factor},
              {"beta_fast", scaling.beta_fast},
              {"beta_slow", scaling.beta_slow},
              {"attention_factor", scaling.attention_factor},
              {"truncate", scaling.truncate},
              {"original_max_position_embeddings",
               static_cast<std::int64_t>(scaling.original_positions)}};
    case RopeScaling::Kind::kLongRope:
      return {{"rope_type", "longrope"},
              {"factor", scaling.factor},
              {"attention_factor", scaling.attention_factor},
              {"short_factor", scaling.short_factors},
              {"long_factor", scaling.long_factors},
              {"original_max_position_embeddings",
               static_cast<std::int64_t>(scaling.original_positions)}};
  }
  return nullptr;
}

}  // namespace

std::string config_activation(Activation activation) {
  switch (activation) {
    case Activation::kSilu: return "silu";
    case Activation::kGeluErf: return "gelu";
    case Activation::kGeluTanh: return "gelu_new";
    case Activation::kRelu: return "relu";
    case Activation::kReluSquared: return "relu2";
  }
  return "";
}

bool has_attention_biases(const ModelSpec& spec) {
  return std::any_of(spec.layers.begin(), spec.layers.end(), [](const LayerTensors& layer) {
    return !layer.attention.q.bias.empty() || !layer.attention.o.bias.empty();
  });
}

bool has_mlp_biases(const ModelSpec& spec) {
  return std::any_of(spec.layers.begin(), spec.layers.end(),
                     [](const LayerTensors& layer) { return !layer.up.bias.empty(); });
}

bool all_grouped_as(const ModelSpec& spec, std::int64_t kv_heads) {
  return std::all_of(spec.kv_heads.begin(), spec.kv_heads.end(),
                     [&](std::int64_t heads) { return heads == kv_heads; });
}

Json config_kv_heads(const ModelSpec& spec) {
  return same_in_all_layers(spec) ? Json(spec.kv_heads.front()) : Json(spec.kv_heads);
}

void add_kv_heads(Json& config, const ModelSpec& spec) {
  if (!all_grouped_as(spec, spec.query_heads)) {
    config["num_key_value_heads"] = config_kv_heads(spec);
  }
}

double rotary_fraction(const ModelSpec& spec) {
  return static_cast<double>(spec.rope.rotary_dim) / static_cast<double>(spec.head_dim);
}

Json begin_config(std::string_view model_type, std::string_view architecture,
                  const ModelSpec& spec) {
  return {{"architectures", {architecture}},
          {"model_type", model_type},
          {"vocab_size", spec.vocab_size},
          {"tie_word_embeddings", spec.lm_head.empty()}};
}

Json llama_frame(std::string_view model_type, std::string_view architecture,
                 const ModelSpec& spec) {
  Json config = begin_config(model_type, architecture, spec);
  config["hidden_size"] = spec.hidden_size;
  config["intermediate_size"] = spec.intermediate_size;
  config["num_hidden_layers"] = spec.layer_count();
  config["num_attention_heads"] = spec.query_heads;
  config["num_key_value_heads"] = config_kv_heads(spec);
  if (spec.max_positions) {
    config["max_position_embeddings"] = *spec.max_positions;
  }
  config["hidden_act"] = config_activation(spec.activation);
  config["rope_theta"] = spec.rope.theta;
  if (spec.rope.scaling.kind != RopeScaling::Kind::kNone) {
    config["rope_scaling"] = scaling_json(spec);
  }
  return config;
}

Json gpt_frame(std::string_view model_type, std::string_view architecture, const ModelSpec& spec) {
  Json config = begin_config(model_type, architecture, spec);
  config["n_embd"] = spec.hidden_size;
  config["n_head"] = spec.query_heads;
  config["n_layer"] = spec.layer_count();
  config["n_inner"] = spec.intermediate_size;
  if (spec.max_positions) {
    config["n_positions"] = *spec.max_positions;
  }
  config["layer_norm_epsilon"] = spec.norm_epsilon;
  config["activation_function"] = config_activation(spec.activation);
  return config;
}

}  // namespace regroup
