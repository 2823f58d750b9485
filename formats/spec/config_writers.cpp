#include "formats/spec/config_writers.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/ranges.h>

#include "formats/base/error.h"
#include "formats/base/json.h"
#include "formats/base/printable.h"

namespace regroup {

namespace {

// Whether all values are the same number.
bool is_one_number(const std::vector<std::int64_t>& values) {
  return !values.empty() &&
         std::adjacent_find(values.begin(), values.end(), std::not_equal_to<>()) == values.end();
}

std::string list_json(const std::vector<std::int64_t>& values) {
  return fmt::format("[{}]", fmt::join(values, ", "));
}

}  // namespace

namespace {

bool all_are(const std::vector<std::int64_t>& values, std::int64_t value) {
  return std::all_of(values.begin(), values.end(), [&](std::int64_t v) { return v == value; });
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
  return is_one_number(values) ? std::to_string(values.front()) : list_json(values);
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

Json write_llama(const ModelSpec& spec) {
  Json config = llama_frame("llama", "LlamaForCausalLM", spec);
  config["head_dim"] = spec.head_dim;
  config["rms_norm_eps"] = spec.norm_epsilon;
  config["attention_bias"] = has_attention_biases(spec);
  config["mlp_bias"] = has_mlp_biases(spec);
  return config;
}

Json write_mistral(const ModelSpec& spec) {
  Json config = llama_frame("mistral", "MistralForCausalLM", spec);
  config["head_dim"] = spec.head_dim;
  config["rms_norm_eps"] = spec.norm_epsilon;
  config["sliding_window"] = spec.sliding_window ? Json(*spec.sliding_window) : Json(nullptr);
  return config;
}

Json write_qwen2(const ModelSpec& spec) {
  Json config = llama_frame("qwen2", "Qwen2ForCausalLM", spec);
  config["rms_norm_eps"] = spec.norm_epsilon;
  config["use_sliding_window"] = false;
  return config;
}

Json write_nemotron_nas(const ModelSpec& spec) {
  Json config = llama_frame("nemotron-nas", "DeciLMForCausalLM", spec);
  config.erase("num_key_value_heads");
  config.erase("intermediate_size");
  config["rms_norm_eps"] = spec.norm_epsilon;
  config["attention_bias"] = has_attention_biases(spec);
  config["mlp_bias"] = has_mlp_biases(spec);
  config["block_configs"] = Json::array();
  for (std::size_t i = 0; i < spec.layers.size(); ++i) {
    const LayerTensors& layer = spec.layers[i];
    const std::int64_t width =
        layer.intermediate_size > 0 ? layer.intermediate_size : spec.intermediate_size;
    Json attention = {{"n_heads_in_group", nullptr}, {"no_op", !layer.attention.present()}};
    if (layer.attention.present()) {
      attention["n_heads_in_group"] = spec.query_heads / spec.kv_heads[i];
    }
    Json mlp = {{"ffn_mult", nullptr}, {"no_op", !layer.up.present()}};
    if (layer.up.present()) {
      mlp["ffn_mult"] = 1.5 * static_cast<double>(width) / static_cast<double>(spec.hidden_size);
    }
    config["block_configs"].push_back({{"attention", attention}, {"ffn", mlp}});
  }
  return config;
}

Json write_phi(const ModelSpec& spec) {
  Json config = llama_frame("phi", "PhiForCausalLM", spec);
  config["partial_rotary_factor"] = rotary_fraction(spec);
  config["layer_norm_eps"] = spec.norm_epsilon;
  config["qk_layernorm"] = spec.qk_norm == QkNorm::kSharedAcrossHeads;
  config["tie_word_embeddings"] = false;  // PhiForCausalLM's output projection has a bias
  config["attention_dropout"] = 0.0;
  config["embd_pdrop"] = 0.0;
  config["resid_pdrop"] = 0.0;
  return config;
}

Json write_phi3(const ModelSpec& spec) {
  Json config = llama_frame("phi3", "Phi3ForCausalLM", spec);
  config["partial_rotary_factor"] = rotary_fraction(spec);
  config["rms_norm_eps"] = spec.norm_epsilon;
  config["sliding_window"] = spec.sliding_window ? Json(*spec.sliding_window) : Json(nullptr);
  if (spec.rope.scaling.kind == RopeScaling::Kind::kLongRope) {
    config["original_max_position_embeddings"] =
        static_cast<std::int64_t>(spec.rope.scaling.original_positions);
  }
  config["pad_token_id"] = nullptr;  // the default is the last of a larger vocabulary
  return config;
}

Json write_cohere(const ModelSpec& spec) {
  Json config = llama_frame("cohere", "CohereForCausalLM", spec);
  config["layer_norm_eps"] = spec.norm_epsilon;
  config["logit_scale"] = spec.output_scale;
  config["attention_bias"] = has_attention_biases(spec);
  return config;
}

Json write_granite(const ModelSpec& spec) {
  Json config = llama_frame("granite", "GraniteForCausalLM", spec);
  config["head_dim"] = spec.head_dim;
  config["rms_norm_eps"] = spec.norm_epsilon;
  config["attention_bias"] = has_attention_biases(spec);
  config["mlp_bias"] = has_mlp_biases(spec);
  config["embedding_multiplier"] = spec.embedding_scale;
  config["attention_multiplier"] =
      spec.attention_scale.value_or(1.0 / std::sqrt(static_cast<double>(spec.head_dim)));
  config["residual_multiplier"] = spec.residual_scale;
  config["logits_scaling"] = 1.0 / spec.output_scale;
  return config;
}

Json write_glm(const ModelSpec& spec) {
  Json config = llama_frame("glm", "GlmForCausalLM", spec);
  config["head_dim"] = spec.head_dim;
  config["partial_rotary_factor"] = rotary_fraction(spec);
  config["rms_norm_eps"] = spec.norm_epsilon;
  config["attention_bias"] = has_attention_biases(spec);
  config["pad_token_id"] = nullptr;
  return config;
}

Json write_smollm3(const ModelSpec& spec) {
  Json config = llama_frame("smollm3", "SmolLM3ForCausalLM", spec);
  config["head_dim"] = spec.head_dim;
  config["rms_norm_eps"] = spec.norm_epsilon;
  config["attention_bias"] = has_attention_biases(spec);
  config["mlp_bias"] = has_mlp_biases(spec);
  config["no_rope_layers"] = Json::array();
  for (const LayerTensors& layer : spec.layers) {
    config["no_rope_layers"].push_back(layer.without_rope ? 0 : 1);
  }
  config["pad_token_id"] = nullptr;
  return config;
}

Json write_starcoder2(const ModelSpec& spec) {
  Json config = llama_frame("starcoder2", "Starcoder2ForCausalLM", spec);
  config["norm_epsilon"] = spec.norm_epsilon;
  config["use_bias"] = has_attention_biases(spec) || has_mlp_biases(spec);
  config["sliding_window"] = spec.sliding_window ? Json(*spec.sliding_window) : Json(nullptr);
  config["attention_dropout"] = 0.0;
  config["embedding_dropout"] = 0.0;
  config["residual_dropout"] = 0.0;
  return config;
}

Json write_nemotron(const ModelSpec& spec) {
  Json config = llama_frame("nemotron", "NemotronForCausalLM", spec);
  config["head_dim"] = spec.head_dim;
  config["partial_rotary_factor"] = rotary_fraction(spec);
  config["norm_eps"] = spec.norm_epsilon;
  config["attention_bias"] = has_attention_biases(spec);
  config["mlp_bias"] = has_mlp_biases(spec);
  return config;
}

Json write_gpt_bigcode(const ModelSpec& spec) {
  Json config = gpt_frame("gpt_bigcode", "GPTBigCodeForCausalLM", spec);
  config["multi_query"] = all_grouped_as(spec, 1);
  config["scale_attn_weights"] = true;
  if (!all_grouped_as(spec, 1)) {
    add_kv_heads(config, spec);
  }
  return config;
}

Json write_gpt2(const ModelSpec& spec) {
  Json config = gpt_frame("gpt2", "GPT2LMHeadModel", spec);
  add_kv_heads(config, spec);
  return config;
}

Json write_gptj(const ModelSpec& spec) {
  Json config = gpt_frame("gptj", "GPTJForCausalLM", spec);
  config["rotary_dim"] = spec.rope.rotary_dim;
  add_kv_heads(config, spec);
  return config;
}

Json write_gpt_neox(const ModelSpec& spec) {
  Json config = llama_frame("gpt_neox", "GPTNeoXForCausalLM", spec);
  config.erase("num_key_value_heads");
  config.erase("rope_theta");
  config["rotary_pct"] = rotary_fraction(spec);
  config["rotary_emb_base"] = spec.rope.theta;
  config["layer_norm_eps"] = spec.norm_epsilon;
  config["hidden_act"] = config_activation(spec.activation);
  config["use_parallel_residual"] = spec.parallel_residual;
  config["attention_bias"] = has_attention_biases(spec);
  add_kv_heads(config, spec);
  return config;
}

Json write_bloom(const ModelSpec& spec) {
  Json config = begin_config("bloom", "BloomForCausalLM", spec);
  config["hidden_size"] = spec.hidden_size;
  config["n_head"] = spec.query_heads;
  config["n_layer"] = spec.layer_count();
  config["layer_norm_epsilon"] = spec.norm_epsilon;
  config["apply_residual_connection_post_layernorm"] = spec.residual_after_norm;
  add_kv_heads(config, spec);
  return config;
}

Json write_mpt(const ModelSpec& spec) {
  Json config = begin_config("mpt", "MptForCausalLM", spec);
  Json attention = {{"alibi", spec.positions == PositionKind::kAlibi},
                    {"alibi_bias_max", static_cast<std::int64_t>(spec.alibi.bias_max)}};
  if (spec.clip_qkv) {
    attention["clip_qkv"] = *spec.clip_qkv;
  }
  if (!all_grouped_as(spec, spec.query_heads)) {
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
  return config;
}

Json write_falcon(const ModelSpec& spec) {
  Json config = begin_config("falcon", "FalconForCausalLM", spec);
  const bool two_norms = spec.layers.front().mlp_norm.present();
  const bool multi_query = all_grouped_as(spec, 1);
  const bool grouped = spec.parallel_residual &&
                       (two_norms || (!multi_query && !all_grouped_as(spec, spec.query_heads)));
  config["hidden_size"] = spec.hidden_size;
  config["ffn_hidden_size"] = spec.intermediate_size;
  config["num_attention_heads"] = spec.query_heads;
  config["num_hidden_layers"] = spec.layer_count();
  if (spec.max_positions) {
    config["max_position_embeddings"] = *spec.max_positions;
  }
  config["activation"] = config_activation(spec.activation);
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
      add_kv_heads(config, spec);
    }
  }
  return config;
}

struct Writer {
  std::string_view architecture;
  Json (*write)(const ModelSpec&);
};

constexpr std::array<Writer, 19> kWriters{{
    {"LlamaForCausalLM", write_llama},
    {"MistralForCausalLM", write_mistral},
    {"Qwen2ForCausalLM", write_qwen2},
    {"PhiForCausalLM", write_phi},
    {"Phi3ForCausalLM", write_phi3},
    {"CohereForCausalLM", write_cohere},
    {"GraniteForCausalLM", write_granite},
    {"GlmForCausalLM", write_glm},
    {"SmolLM3ForCausalLM", write_smollm3},
    {"Starcoder2ForCausalLM", write_starcoder2},
    {"NemotronForCausalLM", write_nemotron},
    {"GPTBigCodeForCausalLM", write_gpt_bigcode},
    {"GPT2LMHeadModel", write_gpt2},
    {"GPTJForCausalLM", write_gptj},
    {"GPTNeoXForCausalLM", write_gpt_neox},
    {"BloomForCausalLM", write_bloom},
    {"MptForCausalLM", write_mpt},
    {"FalconForCausalLM", write_falcon},
    {"DeciLMForCausalLM", write_nemotron_nas},
}};

}  // namespace

std::vector<std::string_view> writable_architectures() {
  std::vector<std::string_view> names;
  for (const Writer& writer : kWriters) {
    names.push_back(writer.architecture);
  }
  return names;
}

Json write_config(std::string_view architecture, const ModelSpec& spec) {
  for (const Writer& writer : kWriters) {
    if (writer.architecture == architecture) {
      return writer.write(spec);
    }
  }
  throw_usage("no config can be written for architecture {}; known: {}", printable(architecture),
              fmt::join(writable_architectures(), ", "));
}

}  // namespace regroup
