#include "formats/families/config_writers.h"

#include <algorithm>
#include <array>

#include <fmt/ranges.h>

#include "formats/base/error.h"
#include "formats/base/printable.h"

namespace regroup {
namespace {

std::string name_of(Activation activation) {
  switch (activation) {
    case Activation::kSilu: return "silu";
    case Activation::kGeluErf: return "gelu";
    case Activation::kGeluTanh: return "gelu_new";
    case Activation::kRelu: return "relu";
    case Activation::kReluSquared: return "relu2";
  }
  return "";
}

const LayerTensors& first_layer(const ModelSpec& spec) { return spec.layers.front(); }

// Not every layer has attention, nor an MLP.
bool attention_biases(const ModelSpec& spec) {
  return std::any_of(spec.layers.begin(), spec.layers.end(), [](const LayerTensors& layer) {
    return !layer.attention.q.bias.empty() || !layer.attention.o.bias.empty();
  });
}

bool mlp_biases(const ModelSpec& spec) {
  return std::any_of(spec.layers.begin(), spec.layers.end(),
                     [](const LayerTensors& layer) { return !layer.up.bias.empty(); });
}

bool gqa_uniform(const ModelSpec& spec) {
  return std::adjacent_find(spec.kv_heads.begin(), spec.kv_heads.end(), std::not_equal_to<>()) ==
         spec.kv_heads.end();
}

Json kv_heads_json(const ModelSpec& spec) {
  return gqa_uniform(spec) ? Json(spec.kv_heads.front()) : Json(spec.kv_heads);
}

Json begin_config(std::string_view model_type, std::string_view architecture,
                  const ModelSpec& spec) {
  return {{"architectures", {architecture}},
          {"model_type", model_type},
          {"vocab_size", spec.vocab_size},
          {"tie_word_embeddings", spec.lm_head.empty()}};
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
  }
  return nullptr;
}

// The keys that Llama and its relatives share.
Json llama_frame(std::string_view model_type, std::string_view architecture,
                 const ModelSpec& spec) {
  Json config = begin_config(model_type, architecture, spec);
  config["hidden_size"] = spec.hidden_size;
  config["intermediate_size"] = spec.intermediate_size;
  config["num_hidden_layers"] = spec.layer_count();
  config["num_attention_heads"] = spec.query_heads;
  config["num_key_value_heads"] = kv_heads_json(spec);
  if (spec.max_positions) {
    config["max_position_embeddings"] = *spec.max_positions;
  }
  config["hidden_act"] = name_of(spec.activation);
  config["rope_theta"] = spec.rope.theta;
  if (spec.rope.scaling.kind != RopeScaling::Kind::kNone) {
    config["rope_scaling"] = scaling_json(spec);
  }
  return config;
}

double rotating_part(const ModelSpec& spec) {
  return static_cast<double>(spec.rope.rotary_dim) / static_cast<double>(spec.head_dim);
}

Json write_llama(const ModelSpec& spec) {
  Json config = llama_frame("llama", "LlamaForCausalLM", spec);
  config["head_dim"] = spec.head_dim;
  config["rms_norm_eps"] = spec.norm_epsilon;
  config["attention_bias"] = attention_biases(spec);
  config["mlp_bias"] = mlp_biases(spec);
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
  config["attention_bias"] = attention_biases(spec);
  config["mlp_bias"] = mlp_biases(spec);
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
  config["partial_rotary_factor"] = rotating_part(spec);
  config["layer_norm_eps"] = spec.norm_epsilon;
  config["qk_layernorm"] = spec.qk_norm == QkNorm::kSharedAcrossHeads;
  config["tie_word_embeddings"] = false;  // PhiForCausalLM has a bias on its own output projection
  config["attention_dropout"] = 0.0;
  config["embd_pdrop"] = 0.0;
  config["resid_pdrop"] = 0.0;
  return config;
}

Json write_starcoder2(const ModelSpec& spec) {
  Json config = llama_frame("starcoder2", "Starcoder2ForCausalLM", spec);
  config["norm_epsilon"] = spec.norm_epsilon;
  config["use_bias"] = attention_biases(spec) || mlp_biases(spec);
  config["sliding_window"] = spec.sliding_window ? Json(*spec.sliding_window) : Json(nullptr);
  config["attention_dropout"] = 0.0;
  config["embedding_dropout"] = 0.0;
  config["residual_dropout"] = 0.0;
  return config;
}

Json write_nemotron(const ModelSpec& spec) {
  Json config = llama_frame("nemotron", "NemotronForCausalLM", spec);
  config["head_dim"] = spec.head_dim;
  config["partial_rotary_factor"] = rotating_part(spec);
  config["norm_eps"] = spec.norm_epsilon;
  config["attention_bias"] = attention_biases(spec);
  config["mlp_bias"] = mlp_biases(spec);
  return config;
}

// The keys that GPT-2 and its relatives share.
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
  config["activation_function"] = name_of(spec.activation);
  return config;
}

bool all_grouped_as(const ModelSpec& spec, std::int64_t kv_heads) {
  return std::all_of(spec.kv_heads.begin(), spec.kv_heads.end(),
                     [&](std::int64_t heads) { return heads == kv_heads; });
}

// The key of families without one of their own is written only where heads are grouped.
void add_kv_heads(Json& config, const ModelSpec& spec) {
  if (!all_grouped_as(spec, spec.query_heads)) {
    config["num_key_value_heads"] = kv_heads_json(spec);
  }
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
  config["rotary_pct"] = rotating_part(spec);
  config["rotary_emb_base"] = spec.rope.theta;
  config["layer_norm_eps"] = spec.norm_epsilon;
  config["hidden_act"] = name_of(spec.activation);
  config["use_parallel_residual"] = spec.parallel_residual;
  config["attention_bias"] = attention_biases(spec);
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
    attention["kv_n_heads"] = kv_heads_json(spec);
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
  const bool two_norms = first_layer(spec).mlp_norm.present();
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
  config["activation"] = name_of(spec.activation);
  config["layer_norm_epsilon"] = spec.norm_epsilon;
  config["alibi"] = spec.positions == PositionKind::kAlibi;
  config["rope_theta"] = spec.rope.theta;
  config["bias"] = attention_biases(spec);
  config["parallel_attn"] = spec.parallel_residual;
  config["new_decoder_architecture"] = grouped;
  if (grouped) {
    config["num_kv_heads"] = kv_heads_json(spec);
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

constexpr std::array<Writer, 14> kWriters{{
    {"LlamaForCausalLM", write_llama},
    {"MistralForCausalLM", write_mistral},
    {"Qwen2ForCausalLM", write_qwen2},
    {"PhiForCausalLM", write_phi},
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
