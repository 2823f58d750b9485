// Llama and the models that share its graph and tensor names: Mistral, Qwen2.
#include <algorithm>

#include "formats/families/decoder_sizes.h"
#include "formats/families/families.h"

namespace regroup {
namespace {

// What differs between the model types, beyond what their configs say.
struct Variant {
  std::int64_t default_kv_heads = 0;  // 0: as many as query heads
  bool qkv_bias_always = false;
};

Variant variant_of(const std::string& model_type) {
  if (model_type == "mistral") {
    return {8, false};
  }
  if (model_type == "qwen2") {
    return {32, true};
  }
  return {};
}

// transformers up to v4 writes rope_theta and rope_scaling, v5 writes rope_parameters.
void read_rope(ModelSpec& spec, const ConfigReader& config) {
  const ConfigReader parameters = config.object("rope_parameters");
  const ConfigReader scaling = config.object("rope_scaling");
  spec.rope.theta = parameters.number_or({"rope_theta"}, config.number_or({"rope_theta"}, 10000.0));
  spec.rope.rotary_dim = spec.head_dim;
  const std::string type =
      parameters.text_or({"rope_type", "type"}, scaling.text_or({"rope_type", "type"}, "default"));
  if (type != "default") {
    spec.not_computable = "rope_type " + type;
  }
}

// The window of Mistral (4096 unless given; null for none) and, where it is switched on, Qwen2.
void read_window(ModelSpec& spec, const ConfigReader& config, const std::string& model_type) {
  if (model_type == "mistral") {
    const std::int64_t absent = 4096;
    spec.sliding_window = config.mentions("sliding_window")
                              ? config.optional_count({"sliding_window"})
                              : std::optional(absent);
  }
  if (model_type == "qwen2" && config.flag_or({"use_sliding_window"}, false)) {
    spec.not_computable = "use_sliding_window in some of the layers";
  }
}

LayerTensors layer_at(const std::string& name, bool qkv_bias, bool o_bias, bool mlp_bias) {
  LayerTensors layer;
  const std::string attention = name + ".self_attn.";
  layer.attention_norm = norm_at(name + ".input_layernorm", false);
  layer.attention = {Packing::kSeparate, linear_at(attention + "q_proj", qkv_bias),
                     linear_at(attention + "k_proj", qkv_bias),
                     linear_at(attention + "v_proj", qkv_bias),
                     linear_at(attention + "o_proj", o_bias)};
  layer.mlp_norm = norm_at(name + ".post_attention_layernorm", false);
  layer.gate = linear_at(name + ".mlp.gate_proj", mlp_bias);
  layer.up = linear_at(name + ".mlp.up_proj", mlp_bias);
  layer.down = linear_at(name + ".mlp.down_proj", mlp_bias);
  return layer;
}

}  // namespace

ModelSpec describe_llama(const ConfigReader& config, const Checkpoint& checkpoint) {
  const std::string model_type = config.text_or({"model_type"}, "llama");
  const Variant variant = variant_of(model_type);
  ModelSpec spec;
  spec.hidden_size = config.count({"hidden_size"});
  set_heads(spec, config, {"num_attention_heads"}, config.optional_count({"head_dim"}));
  const std::int64_t layers = read_layer_count(config, {"num_hidden_layers"}, checkpoint);
  spec.intermediate_size = config.count({"intermediate_size"});
  spec.vocab_size = config.count({"vocab_size"});
  spec.max_positions = config.optional_count({"max_position_embeddings"});
  const std::int64_t default_kv_heads =
      variant.default_kv_heads == 0 || config.mentions("num_key_value_heads")
          ? spec.query_heads
          : variant.default_kv_heads;
  spec.kv_heads =
      config.kv_heads("num_key_value_heads", layers, spec.query_heads, default_kv_heads);
  spec.loaders_read_kv_heads = true;

  spec.positions = PositionKind::kRope;
  read_rope(spec, config);
  read_window(spec, config, model_type);
  spec.norm = NormKind::kRmsNorm;
  spec.norm_epsilon = config.number_or({"rms_norm_eps"}, 1e-6);
  spec.activation = activation_from_name(config.text_or({"hidden_act"}, "silu"), config.where());

  const std::string prefix = find_prefix(checkpoint, {"model.", ""}, "embed_tokens.weight");
  const bool attention_bias = config.flag_or({"attention_bias"}, false);
  const bool mlp_bias = config.flag_or({"mlp_bias"}, false);
  for (std::int64_t i = 0; i < layers; ++i) {
    spec.layers.push_back(layer_at(prefix + "layers." + std::to_string(i),
                                   attention_bias || variant.qkv_bias_always, attention_bias,
                                   mlp_bias));
  }
  spec.token_embedding = prefix + "embed_tokens.weight";
  spec.final_norm = norm_at(prefix + "norm", false);
  spec.lm_head = config.flag_or({"tie_word_embeddings"}, false) ? "" : "lm_head.weight";
  return spec;
}

}  // namespace regroup
