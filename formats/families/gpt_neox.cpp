// GPT-NeoX (Pythia): fused [H, 3, d], partial RoPE, attention and MLP in parallel.
#include "formats/config/decoder_sizes.h"
#include "formats/config/rope_config.h"
#include "formats/families/families.h"

namespace regroup {
namespace {

LayerTensors neox_layer(const std::string& name, bool bias) {
  const LinearTensors fused = linear_at(name + ".attention.query_key_value", bias);
  LayerTensors layer;
  layer.attention_norm = norm_at(name + ".input_layernorm", true);
  layer.attention = {
      Packing::kPerGroup, fused, fused, fused, linear_at(name + ".attention.dense", bias), {}, {}};
  layer.mlp_norm = norm_at(name + ".post_attention_layernorm", true);
  layer.up = linear_at(name + ".mlp.dense_h_to_4h", true);
  layer.down = linear_at(name + ".mlp.dense_4h_to_h", true);
  return layer;
}

}  // namespace

ModelSpec describe_gpt_neox(const ConfigReader& config, const Checkpoint& checkpoint) {
  ModelSpec spec;
  spec.hidden_size = config.count({"hidden_size"});
  set_heads(spec, config, {"num_attention_heads"}, std::nullopt);
  const std::int64_t layers = read_layer_count(config, {"num_hidden_layers"}, checkpoint);
  spec.intermediate_size = config.count({"intermediate_size"});
  spec.vocab_size = config.count({"vocab_size"});
  spec.max_positions = config.optional_count({"max_position_embeddings"});
  spec.kv_heads =
      config.kv_heads("num_key_value_heads", layers, spec.query_heads, spec.query_heads);
  read_rope(spec, config, {.partial = 0.25});
  spec.norm = NormKind::kLayerNorm;
  spec.norm_epsilon = config.number_or({"layer_norm_eps"}, 1e-5);
  spec.activation = activation_from_name(config.text_or({"hidden_act"}, "gelu"), config.where());
  spec.parallel_residual = config.flag_or({"use_parallel_residual"}, true);

  const bool bias = config.flag_or({"attention_bias"}, true);
  const std::string prefix = find_prefix(checkpoint, {"gpt_neox.", ""}, "embed_in.weight");
  for (std::int64_t i = 0; i < layers; ++i) {
    spec.layers.push_back(neox_layer(prefix + "layers." + std::to_string(i), bias));
  }
  spec.token_embedding = prefix + "embed_in.weight";
  spec.final_norm = norm_at(prefix + "final_layer_norm", true);
  name_output(spec, config,
              find_prefix(checkpoint, {"embed_out", "lm_head"}, ".weight") + ".weight",
              /*tied=*/false);
  return spec;
}

}  // namespace regroup
