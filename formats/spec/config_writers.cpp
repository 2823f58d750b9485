#include "formats/spec/config_writers.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <stdexcept>

#include <fmt/ranges.h>

#include "formats/base/error.h"
#include "formats/base/printable.h"
#include "formats/spec/config_reader.h"

namespace regroup {

namespace {

bool all_are(const std::vector<std::int64_t>& values, std::int64_t value) {
  return std::ranges::all_of(values, [&](std::int64_t v) { return v == value; });
}

std::string list_json(const std::vector<std::int64_t>& values) {
  return fmt::format("[{}]", fmt::join(values, ", "));
}

}  // namespace

std::string config_with_kv_heads(const std::string& config_text, const ModelSpec& spec,
                                 const std::vector<std::int64_t>& kv_heads) {
  if (!spec.layer_configs_key.empty()) {
    return with_each_element(
        config_text, spec.layer_configs_key, [&](std::size_t layer, std::string_view text) {
          const bool attends = layer < kv_heads.size() && kv_heads[layer] > 0;
          if (attends && !text.starts_with('{')) {
            throw_bad_input("config.json: {}[{}] is no object",
                            fmt::join(spec.layer_configs_key, "."), layer);
          }
          return attends ? with_member(text, spec.heads_per_group_key,
                                       std::to_string(spec.query_heads / kv_heads[layer]))
                         : std::string(text);
        });
  }
  const std::string value =
      spec.kv_heads_always_listed ? list_json(kv_heads) : per_layer_json(kv_heads);
  std::string text = with_member(config_text, spec.kv_heads_key, value);
  for (const std::vector<std::string>& copy : spec.kv_heads_copies) {
    text = with_member(text, copy, value);
  }
  return text;
}

std::string config_with_changed_heads(const std::string& config_text, const ModelSpec& source,
                                      const ModelSpec& target) {
  std::string text = config_text;
  for (const AttentionRole role : target.roles()) {
    const std::vector<std::int64_t>&before = source.kv_heads_of(role),
          &heads = target.kv_heads_of(role);
    if (target.loaders_read_kv_heads || !all_are(heads, target.query_heads) ||
        (before != heads && !all_are(before, target.query_heads))) {
      text = role == AttentionRole::kSelf
                 ? config_with_kv_heads(text, target, heads)
                 : with_member(text, target.kv_heads_key_of(role), per_layer_json(heads));
    }
  }
  if (!target.multi_query_key.empty()) {
    std::vector<std::string> path = target.config_path;
    path.push_back(target.multi_query_key);
    text = with_member(text, path, all_are(target.kv_heads, 1) ? "true" : "false");
  }
  return text;
}

std::string per_layer_json(const std::vector<std::int64_t>& values) {
  return !values.empty() && all_equal(values) ? std::to_string(values.front()) : list_json(values);
}

std::string kv_heads_json(const ModelSpec& spec) {
  if (!spec.has_encoder()) {
    return per_layer_json(spec.kv_heads);
  }
  std::vector<std::string> members;
  for (const AttentionRole role : spec.roles()) {
    members.push_back(
        fmt::format("\"{}\": {}", name_of(role), per_layer_json(spec.kv_heads_of(role))));
  }
  return fmt::format("{{{}}}", fmt::join(members, ", "));
}

namespace {

// Not every layer has both an attention and an MLP.
bool has_attention_biases(const ModelSpec& spec) {
  return std::ranges::any_of(spec.layers, [](const LayerTensors& layer) {
    return !layer.attention.q.bias.empty() || !layer.attention.o.bias.empty();
  });
}

bool has_mlp_biases(const ModelSpec& spec) {
  return std::ranges::any_of(spec.layers,
                             [](const LayerTensors& layer) { return !layer.up.bias.empty(); });
}

// The number of kv heads, or a list if it differs between layers.
Json config_kv_heads(const ModelSpec& spec) {
  return all_equal(spec.kv_heads) ? Json(spec.kv_heads.front()) : Json(spec.kv_heads);
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

// The keys that all architectures share, and those of Llama's and of GPT-2's relatives.
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
  config["hidden_act"] = config_name_of(spec.activation);
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
  config["activation_function"] = config_name_of(spec.activation);
  return config;
}

// Keys that several architectures have, or that need no more than a value.

const Json kLeftOut(Json::value_t::discarded);

Json epsilon(const ModelSpec& spec) { return spec.norm_epsilon; }
Json no_dropout(const ModelSpec&) { return 0.0; }
Json json_null(const ModelSpec&) { return nullptr; }
Json rotary_fraction(const ModelSpec& spec) {
  return static_cast<double>(spec.rope.rotary_dim) / static_cast<double>(spec.head_dim);
}

Json original_positions(const ModelSpec& spec) {
  return spec.rope.scaling.kind == RopeScaling::Kind::kLongRope
             ? Json(static_cast<std::int64_t>(spec.rope.scaling.original_positions))
             : kLeftOut;
}

Json attention_multiplier(const ModelSpec& spec) {
  return spec.attention_scale.value_or(1.0 / std::sqrt(static_cast<double>(spec.head_dim)));
}

Json no_rope_layers(const ModelSpec& spec) {
  Json list = Json::array();
  for (const LayerTensors& layer : spec.layers) {
    list.push_back(layer.without_rope ? 0 : 1);
  }
  return list;
}

struct ConfigKey {
  std::string_view name;
  Json (*value)(const ModelSpec&);
};

constexpr auto kConfigKeys = std::to_array<ConfigKey>({
    {"hidden_size", [](const ModelSpec& spec) { return Json(spec.hidden_size); }},
    {"n_head", [](const ModelSpec& spec) { return Json(spec.query_heads); }},
    {"n_layer", [](const ModelSpec& spec) { return Json(spec.layer_count()); }},
    {"head_dim", [](const ModelSpec& spec) { return Json(spec.head_dim); }},
    {"rms_norm_eps", epsilon},
    {"layer_norm_eps", epsilon},
    {"layer_norm_epsilon", epsilon},
    {"norm_eps", epsilon},
    {"norm_epsilon", epsilon},
    {"attention_bias", [](const ModelSpec& spec) { return Json(has_attention_biases(spec)); }},
    {"mlp_bias", [](const ModelSpec& spec) { return Json(has_mlp_biases(spec)); }},
    {"use_bias",
     [](const ModelSpec& spec) {
       return Json(has_attention_biases(spec) || has_mlp_biases(spec));
     }},
    {"sliding_window", [](const ModelSpec& spec) { return or_null(spec.sliding_window); }},
    {"use_sliding_window", [](const ModelSpec&) { return Json(false); }},
    {"use_qkv_bias", [](const ModelSpec& spec) { return Json(has_attention_biases(spec)); }},
    {"clip_qkv", [](const ModelSpec& spec) { return or_null(spec.clip_qkv); }},
    {"partial_rotary_factor", rotary_fraction},
    {"rotary_pct", rotary_fraction},
    {"rotary_dim", [](const ModelSpec& spec) { return Json(spec.rope.rotary_dim); }},
    {"rotary_emb_base", [](const ModelSpec& spec) { return Json(spec.rope.theta); }},
    {"original_max_position_embeddings", original_positions},
    {"no_rope_layers", no_rope_layers},
    {"qk_layernorm", [](const ModelSpec& spec) { return Json(spec.qk_norm != QkNorm::kNone); }},
    {"logit_scale", [](const ModelSpec& spec) { return Json(spec.output_scale); }},
    {"embedding_multiplier", [](const ModelSpec& spec) { return Json(spec.embedding_scale); }},
    {"attention_multiplier", attention_multiplier},
    {"residual_multiplier", [](const ModelSpec& spec) { return Json(spec.residual_scale); }},
    {"logits_scaling", [](const ModelSpec& spec) { return Json(1.0 / spec.output_scale); }},
    {"use_parallel_residual", [](const ModelSpec& spec) { return Json(spec.parallel_residual); }},
    {"apply_residual_connection_post_layernorm",
     [](const ModelSpec& spec) { return Json(spec.residual_after_norm); }},
    {"pad_token_id", json_null},  // the default may be the last of a larger vocabulary
    {"attention_dropout", no_dropout},
    {"embedding_dropout", no_dropout},
    {"residual_dropout", no_dropout},
    {"embd_pdrop", no_dropout},
    {"resid_pdrop", no_dropout},
});

// What else an architecture writes.

// For architectures without a key of their own.
void add_grouped_heads(Json& config, const ModelSpec& spec) {
  if (!all_are(spec.kv_heads, spec.query_heads)) {
    config["num_key_value_heads"] = config_kv_heads(spec);
  }
}

// PhiForCausalLM's output projection has a bias.
void untie(Json& config, const ModelSpec&) { config["tie_word_embeddings"] = false; }

void add_blocks(Json& config, const ModelSpec& spec) {
  config.erase("num_key_value_heads");
  config.erase("intermediate_size");
  config["block_configs"] = Json::array();
  for (std::size_t i = 0; i < spec.layers.size(); ++i) {
    const LayerTensors& layer = spec.layers[i];
    Json attention = {{"n_heads_in_group", nullptr}, {"no_op", !layer.attention.present()}};
    if (layer.attention.present()) {
      attention["n_heads_in_group"] = spec.query_heads / spec.kv_heads[i];
    }
    Json mlp = {{"ffn_mult", nullptr}, {"no_op", !layer.up.present()}};
    if (layer.up.present()) {
      mlp["ffn_mult"] =
          1.5 * static_cast<double>(spec.width_of(layer)) / static_cast<double>(spec.hidden_size);
    }
    config["block_configs"].push_back({{"attention", attention}, {"ffn", mlp}});
  }
}

void add_bigcode(Json& config, const ModelSpec& spec) {
  const bool multi_query = all_are(spec.kv_heads, 1);
  config["multi_query"] = multi_query;
  config["scale_attn_weights"] = true;
  if (!multi_query) {
    add_grouped_heads(config, spec);
  }
}

void rename_like_neox(Json& config, const ModelSpec& spec) {
  config.erase("num_key_value_heads");
  config.erase("rope_theta");
  add_grouped_heads(config, spec);
}

void add_mpt(Json& config, const ModelSpec& spec) {
  Json attention = {{"alibi", spec.positions == PositionKind::kAlibi},
                    {"alibi_bias_max", static_cast<std::int64_t>(spec.alibi.bias_max)}};
  if (spec.clip_qkv) {
    attention["clip_qkv"] = *spec.clip_qkv;
  }
  if (!all_are(spec.kv_heads, spec.query_heads)) {
    attention["kv_n_heads"] = config_kv_heads(spec);
  }
  config["d_model"] = spec.hidden_size;
  config["n_heads"] = spec.query_heads;
  config["n_layers"] = spec.layer_count();
  config["expansion_ratio"] = spec.intermediate_size / spec.hidden_size;
  config["max_seq_len"] = spec.max_positions.value_or(2048);
  config["layer_norm_epsilon"] = spec.norm_epsilon;
  config["no_bias"] = true;
  config["attn_config"] = attention;
}

void add_falcon(Json& config, const ModelSpec& spec) {
  const bool two_norms = spec.layers.front().mlp_norm.present();
  const bool multi_query = all_are(spec.kv_heads, 1);
  const bool grouped = spec.parallel_residual &&
                       (two_norms || (!multi_query && !all_are(spec.kv_heads, spec.query_heads)));
  config["hidden_size"] = spec.hidden_size;
  config["ffn_hidden_size"] = spec.intermediate_size;
  config["num_attention_heads"] = spec.query_heads;
  config["num_hidden_layers"] = spec.layer_count();
  if (spec.max_positions) {
    config["max_position_embeddings"] = *spec.max_positions;
  }
  config["activation"] = config_name_of(spec.activation);
  config["layer_norm_epsilon"] = spec.norm_epsilon;
  config["alibi"] = spec.positions == PositionKind::kAlibi;
  config["rope_theta"] = spec.rope.theta;
  config["bias"] = has_attention_biases(spec);
  config["parallel_attn"] = spec.parallel_residual;
  config["new_decoder_architecture"] = grouped;
  if (grouped) {
    config["num_kv_heads"] = config_kv_heads(spec);
    config["num_ln_in_parallel_attn"] = two_norms ? 2 : 1;
  } else {
    config["multi_query"] = multi_query;
    if (!multi_query) {
      add_grouped_heads(config, spec);
    }
  }
}

struct Architecture {
  struct Base {
    std::string_view name, model_type;
    Json (*frame)(std::string_view model_type, std::string_view architecture, const ModelSpec&);
  };
  Base base;
  std::array<std::string_view, 8> keys = {};  // after those of the frame, in this order
  void (*adapt)(Json&, const ModelSpec&) = nullptr;
};

constexpr auto kArchitectures = std::to_array<Architecture>({
    {{"LlamaForCausalLM", "llama", llama_frame},
     {"head_dim", "rms_norm_eps", "attention_bias", "mlp_bias"}},
    {{"MistralForCausalLM", "mistral", llama_frame},
     {"head_dim", "rms_norm_eps", "sliding_window"}},
    {{"Qwen2ForCausalLM", "qwen2", llama_frame}, {"rms_norm_eps", "use_sliding_window"}},
    {{"PhiForCausalLM", "phi", llama_frame},
     {"partial_rotary_factor", "layer_norm_eps", "qk_layernorm", "attention_dropout", "embd_pdrop",
      "resid_pdrop"},
     untie},
    {{"Phi3ForCausalLM", "phi3", llama_frame},
     {"partial_rotary_factor", "rms_norm_eps", "sliding_window", "original_max_position_embeddings",
      "pad_token_id"}},
    {{"CohereForCausalLM", "cohere", llama_frame},
     {"layer_norm_eps", "logit_scale", "attention_bias"}},
    {{"GraniteForCausalLM", "granite", llama_frame},
     {"head_dim", "rms_norm_eps", "attention_bias", "mlp_bias", "embedding_multiplier",
      "attention_multiplier", "residual_multiplier", "logits_scaling"}},
    {{"GlmForCausalLM", "glm", llama_frame},
     {"head_dim", "partial_rotary_factor", "rms_norm_eps", "attention_bias", "pad_token_id"}},
    {{"SmolLM3ForCausalLM", "smollm3", llama_frame},
     {"head_dim", "rms_norm_eps", "attention_bias", "mlp_bias", "no_rope_layers", "pad_token_id"}},
    {{"Starcoder2ForCausalLM", "starcoder2", llama_frame},
     {"norm_epsilon", "use_bias", "sliding_window", "attention_dropout", "embedding_dropout",
      "residual_dropout"}},
    {{"NemotronForCausalLM", "nemotron", llama_frame},
     {"head_dim", "partial_rotary_factor", "norm_eps", "attention_bias", "mlp_bias"}},
    {{"GPTBigCodeForCausalLM", "gpt_bigcode", gpt_frame}, {}, add_bigcode},
    {{"GPT2LMHeadModel", "gpt2", gpt_frame}, {}, add_grouped_heads},
    {{"GPTJForCausalLM", "gptj", gpt_frame}, {"rotary_dim"}, add_grouped_heads},
    {{"GPTNeoXForCausalLM", "gpt_neox", llama_frame},
     {"rotary_pct", "rotary_emb_base", "layer_norm_eps", "use_parallel_residual", "attention_bias"},
     rename_like_neox},
    {{"BloomForCausalLM", "bloom", begin_config},
     {"hidden_size", "n_head", "n_layer", "layer_norm_epsilon",
      "apply_residual_connection_post_layernorm"},
     add_grouped_heads},
    {{"MptForCausalLM", "mpt", begin_config}, {}, add_mpt},
    {{"FalconForCausalLM", "falcon", begin_config}, {}, add_falcon},
    {{"Qwen3ForCausalLM", "qwen3", llama_frame},
     {"head_dim", "rms_norm_eps", "attention_bias", "use_sliding_window"}},
    {{"OlmoForCausalLM", "olmo", llama_frame}, {"attention_bias", "clip_qkv", "pad_token_id"}},
    {{"Olmo2ForCausalLM", "olmo2", llama_frame},
     {"rms_norm_eps", "attention_bias", "pad_token_id"}},
    {{"StableLmForCausalLM", "stablelm", llama_frame},
     {"partial_rotary_factor", "layer_norm_eps", "use_qkv_bias", "use_parallel_residual",
      "qk_layernorm"}},
    {{"DeciLMForCausalLM", "nemotron-nas", llama_frame},
     {"rms_norm_eps", "attention_bias", "mlp_bias"},
     add_blocks},
});

// An architecture with fewer keys than its row has places leaves the others empty.
Json value_of(std::string_view key, const ModelSpec& spec) {
  if (key.empty()) {
    return kLeftOut;
  }
  const auto found = std::ranges::find(kConfigKeys, key, &ConfigKey::name);
  if (found == kConfigKeys.end()) {
    throw std::logic_error(fmt::format("the table of config keys lacks {}", key));
  }
  return found->value(spec);
}

}  // namespace

std::vector<std::string_view> writable_architectures() {
  std::vector<std::string_view> names;
  for (const Architecture& architecture : kArchitectures) {
    names.push_back(architecture.base.name);
  }
  return names;
}

Json write_config(std::string_view name, const ModelSpec& spec) {
  const auto* found = std::ranges::find(kArchitectures, name,
                                        [](const Architecture& each) { return each.base.name; });
  if (found == kArchitectures.end()) {
    throw_usage("no config can be written for architecture {}; known: {}", printable(name),
                fmt::join(writable_architectures(), ", "));
  }
  Json config = found->base.frame(found->base.model_type, name, spec);
  for (const std::string_view key : found->keys) {
    const Json value = value_of(key, spec);
    if (!value.is_discarded()) {
      config[std::string(key)] = value;
    }
  }
  if (found->adapt != nullptr) {
    found->adapt(config, spec);
  }
  return config;
}

}  // namespace regroup
