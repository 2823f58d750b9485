// ChatGLM2, ChatGLM3 and GLM-4 in the form of their own code (grouped heads, fused projections,
// RoPE on half of each head), and GLM, the same in transformers. ChatGLM-6B is another model.
#include "formats/base/error.h"
#include "formats/config/decoder_sizes.h"
#include "formats/config/rope_config.h"
#include "formats/families/families.h"
#include "formats/families/llama_layout.h"

namespace regroup {
namespace {

LayerTensors chatglm2_layer(const std::string& name, bool bias, bool qkv_bias) {
  const LinearTensors fused = linear_at(name + ".self_attention.query_key_value", qkv_bias);
  LayerTensors layer;
  layer.attention_norm = norm_at(name + ".input_layernorm", false);
  layer.attention = {Packing::kQueryKeyValue,
                     fused,
                     fused,
                     fused,
                     linear_at(name + ".self_attention.dense", bias),
                     {},
                     {}};
  layer.mlp_norm = norm_at(name + ".post_attention_layernorm", false);
  layer.gate = layer.up = linear_at(name + ".mlp.dense_h_to_4h", bias);
  layer.down = linear_at(name + ".mlp.dense_4h_to_h", bias);
  return layer;
}

void read_chatglm2_sizes(ModelSpec& spec, const ConfigReader& config,
                         const Checkpoint& checkpoint) {
  if (!config.flag_or({"multi_query_attention"}, false)) {
    throw_bad_input(
        "{}: multi_query_attention is not true; ChatGLM models without grouped heads are not "
        "supported: set it to true with multi_query_group_num = num_attention_heads if the weights "
        "are in that form",
        config.where());
  }
  spec.hidden_size = config.count({"hidden_size"});
  set_heads(spec, config, {"num_attention_heads"}, config.optional_count({"kv_channels"}));
  const std::int64_t layers = read_layer_count(config, {"num_layers"}, checkpoint);
  spec.layers.resize(static_cast<std::size_t>(layers));
  spec.intermediate_size = config.count({"ffn_hidden_size"});
  spec.vocab_size = config.count({"padded_vocab_size"});
  spec.max_positions = config.optional_count({"seq_length"});
  spec.kv_heads_key = {"multi_query_group_num"};
  spec.kv_heads = config.kv_heads("multi_query_group_num", layers, spec.query_heads, 1);
  spec.loaders_read_kv_heads = true;  // its own code does
}

// Releases of the family read rope_ratio as a factor of the base or as a divisor of positions.
std::string unsupported_chatglm_setting(const ConfigReader& config) {
  if (config.number_or({"rope_ratio"}, 1.0) != 1.0) {
    return "rope_ratio, which releases of this family read differently";
  }
  if (!config.flag_or({"rmsnorm"}, true)) {
    return "rmsnorm = false";
  }
  if (!config.flag_or({"post_layer_norm"}, true)) {
    return "post_layer_norm = false";
  }
  return config.find("pre_seq_len") != nullptr ? "pre_seq_len" : "";
}

ModelSpec describe_chatglm2(const ConfigReader& config, const Checkpoint& checkpoint) {
  constexpr double kTheta = 10000.0;
  ModelSpec spec;
  read_chatglm2_sizes(spec, config, checkpoint);
  spec.positions = PositionKind::kRope;
  spec.rope.theta = kTheta;
  spec.rope.rotary_dim = spec.head_dim / 2;
  spec.rope.interleaved = true;
  spec.norm = NormKind::kRmsNorm;
  spec.norm_epsilon = config.number_or({"layernorm_epsilon"}, 1e-5);
  spec.activation = Activation::kSilu;
  spec.residual_after_norm = config.flag_or({"apply_residual_connection_post_layernorm"}, false);
  spec.not_computable = unsupported_chatglm_setting(config);
  const bool bias = config.flag_or({"add_bias_linear"}, false);
  const bool qkv_bias = bias || config.flag_or({"add_qkv_bias"}, false);
  for (std::size_t i = 0; i < spec.layers.size(); ++i) {
    spec.layers[i] =
        chatglm2_layer("transformer.encoder.layers." + std::to_string(i), bias, qkv_bias);
  }
  spec.token_embedding = "transformer.embedding.word_embeddings.weight";
  spec.final_norm = norm_at("transformer.encoder.final_layernorm", false);
  name_output(spec, config, "transformer.output_layer.weight", /*tied=*/false);
  return spec;
}

}  // namespace

ModelSpec describe_glm(const ConfigReader& config, const Checkpoint& checkpoint) {
  ModelSpec spec = describe_llama_like(config, checkpoint, {.kv_heads = 2, .head_dim = 128},
                                       /*default_epsilon=*/1.5625e-7, {.partial = 0.5});
  spec.rope.interleaved = true;
  name_llama_tensors(spec, config, checkpoint, {.qkv = config.flag_or({"attention_bias"}, true)});
  for (std::int64_t i = 0; i < spec.layer_count(); ++i) {
    LayerTensors& layer = spec.layers[static_cast<std::size_t>(i)];
    layer.gate = layer.up = linear_at(llama_layer_name(checkpoint, i) + ".mlp.gate_up_proj", false);
  }
  return spec;
}

ModelSpec describe_chatglm(const ConfigReader& config, const Checkpoint& checkpoint) {
  if (config.flag_or({"position_encoding_2d"}, false) ||
      config.find("inner_hidden_size") != nullptr) {
    throw_bad_input(
        "{}: ChatGLM-6B is not supported: its positions have two dimensions; ChatGLM2, ChatGLM3 "
        "and GLM-4 are",
        config.where());
  }
  return describe_chatglm2(config, checkpoint);
}

}  // namespace regroup
