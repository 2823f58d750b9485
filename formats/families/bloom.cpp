// BLOOM: heads stored as [H, 3, d], ALiBi instead of position embeddings.
#include "formats/config/decoder_sizes.h"
#include "formats/families/families.h"

namespace regroup {
namespace {

LayerTensors bloom_layer(const std::string& name) {
  LayerTensors layer;
  const LinearTensors fused = linear_at(name + ".self_attention.query_key_value", true);
  layer.attention_norm = norm_at(name + ".input_layernorm", true);
  layer.attention = {Packing::kPerGroup,
                     fused,
                     fused,
                     fused,
                     linear_at(name + ".self_attention.dense", true),
                     {},
                     {}};
  layer.mlp_norm = norm_at(name + ".post_attention_layernorm", true);
  layer.up = linear_at(name + ".mlp.dense_h_to_4h", true);
  layer.down = linear_at(name + ".mlp.dense_4h_to_h", true);
  return layer;
}

}  // namespace

ModelSpec describe_bloom(const ConfigReader& config, const Checkpoint& checkpoint) {
  ModelSpec spec;
  spec.hidden_size = config.count({"hidden_size", "n_embed"});
  set_heads(spec, config, {"n_head", "num_attention_heads"}, std::nullopt);
  const std::int64_t layers =
      read_layer_count(config, {"n_layer", "num_hidden_layers"}, checkpoint);
  spec.intermediate_size = 4 * spec.hidden_size;
  spec.vocab_size = config.count({"vocab_size"});
  spec.kv_heads =
      config.kv_heads("num_key_value_heads", layers, spec.query_heads, spec.query_heads);

  spec.positions = PositionKind::kAlibi;
  spec.norm = NormKind::kLayerNorm;
  spec.norm_epsilon = config.number_or({"layer_norm_epsilon"}, 1e-5);
  spec.activation = Activation::kGeluTanh;
  spec.residual_after_norm = config.flag_or({"apply_residual_connection_post_layernorm"}, false);

  const std::string prefix =
      find_prefix(checkpoint, {"transformer.", ""}, "word_embeddings.weight");
  for (std::int64_t i = 0; i < layers; ++i) {
    spec.layers.push_back(bloom_layer(prefix + "h." + std::to_string(i)));
  }
  spec.token_embedding = prefix + "word_embeddings.weight";
  spec.embedding_norm = norm_at(prefix + "word_embeddings_layernorm", true);
  spec.final_norm = norm_at(prefix + "ln_f", true);
  name_output(spec, config, "lm_head.weight", /*tied=*/true);
  return spec;
}

}  // namespace regroup
