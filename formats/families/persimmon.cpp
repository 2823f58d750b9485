// Persimmon: GPT-NeoX's fused [H, 3, d] in a sequential block, with LayerNorm of queries and keys.
#include "formats/config/decoder_sizes.h"
#include "formats/config/rope_config.h"
#include "formats/families/families.h"

namespace regroup {
namespace {

LayerTensors persimmon_layer(const std::string& name, bool qk_norm) {
  const LinearTensors fused = linear_at(name + ".self_attn.query_key_value", true);
  LayerTensors layer;
  layer.attention_norm = norm_at(name + ".input_layernorm", true);
  layer.attention = {
      Packing::kPerGroup, fused, fused, fused, linear_at(name + ".self_attn.dense", true), {}, {}};
  if (qk_norm) {
    layer.attention.q_norms = {norm_at(name + ".self_attn.q_layernorm", true)};
    layer.attention.k_norms = {norm_at(name + ".self_attn.k_layernorm", true)};
  }
  layer.mlp_norm = norm_at(name + ".post_attention_layernorm", true);
  layer.up = linear_at(name + ".mlp.dense_h_to_4h", true);
  layer.down = linear_at(name + ".mlp.dense_4h_to_h", true);
  return layer;
}

}  // namespace

ModelSpec describe_persimmon(const ConfigReader& config, const Checkpoint& checkpoint) {
  ModelSpec spec;
  spec.hidden_size = config.count({"hidden_size"});
  set_heads(spec, config, {"num_attention_heads"}, std::nullopt);
  const std::int64_t layers = read_layer_count(config, {"num_hidden_layers"}, checkpoint);
  spec.intermediate_size = config.count({"intermediate_size"});
  spec.vocab_size = config.count({"vocab_size"});
  spec.max_positions = config.optional_count({"max_position_embeddings"});
  spec.kv_heads =
      config.kv_heads("num_key_value_heads", layers, spec.query_heads, spec.query_heads);
  read_rope(spec, config, {.theta = 25000.0, .partial = 0.5});
  spec.norm = NormKind::kLayerNorm;
  spec.norm_epsilon = config.number_or({"layer_norm_eps"}, 1e-5);
  spec.activation = activation_from_name(config.text_or({"hidden_act"}, "relu2"), config.where());
  const bool qk_norm = config.flag_or({"qk_layernorm"}, true);
  spec.qk_norm = qk_norm ? QkNorm::kSharedAcrossHeads : QkNorm::kNone;

  const std::string prefix = find_prefix(checkpoint, {"model.", ""}, "embed_tokens.weight");
  for (std::int64_t i = 0; i < layers; ++i) {
    spec.layers.push_back(persimmon_layer(prefix + "layers." + std::to_string(i), qk_norm));
  }
  spec.token_embedding = prefix + "embed_tokens.weight";
  spec.final_norm = norm_at(prefix + "final_layernorm", true);
  name_output(spec, config, "lm_head.weight", /*tied=*/false);
  return spec;
}

}  // namespace regroup
