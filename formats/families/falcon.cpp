// Falcon: G groups of [H/G query heads, key, value] in all its layouts; ALiBi (RW) or RoPE.
#include "formats/base/error.h"
#include "formats/config/decoder_sizes.h"
#include "formats/config/rope_config.h"
#include "formats/families/families.h"

namespace regroup {
namespace {

// The flags that distinguish Falcon's layouts. multi_query and parallel_attn are true by default.
struct FalconLayout {
  bool grouped = false;   // new_decoder_architecture: 40B, 180B, 11B
  bool parallel = false;  // attention and MLP in parallel
  bool two_norms = false;
  bool biases = false;
};

FalconLayout read_layout(const ConfigReader& config) {
  FalconLayout layout;
  layout.grouped = config.flag_or({"new_decoder_architecture"}, false);
  layout.parallel = config.flag_or({"parallel_attn"}, true);
  layout.biases = config.flag_or({"bias"}, false);
  if (layout.grouped && !layout.parallel) {
    throw_bad_input("{}: new_decoder_architecture with parallel_attn = false is no known Falcon",
                    config.where());
  }
  const auto norms = config.optional_count({"num_ln_in_parallel_attn"});
  layout.two_norms = layout.grouped && norms.value_or(2) == 2;
  return layout;
}

void read_kv_heads(ModelSpec& spec, const ConfigReader& config, const FalconLayout& layout,
                   std::int64_t layers) {
  if (layout.grouped) {
    spec.kv_heads = config.kv_heads("num_kv_heads", layers, spec.query_heads, spec.query_heads);
    spec.kv_heads_key = {"num_kv_heads"};
    spec.loaders_read_kv_heads = true;
    return;
  }
  const bool multi_query = config.flag_or({"multi_query"}, true);
  spec.kv_heads = config.kv_heads("num_key_value_heads", layers, spec.query_heads,
                                  multi_query ? 1 : spec.query_heads);
  spec.multi_query_key = "multi_query";
}

LayerTensors layer_at(const std::string& name, const FalconLayout& layout) {
  LayerTensors layer;
  const LinearTensors fused = linear_at(name + ".self_attention.query_key_value", layout.biases);
  layer.attention = {Packing::kPerGroup,
                     fused,
                     fused,
                     fused,
                     linear_at(name + ".self_attention.dense", layout.biases),
                     {},
                     {}};
  if (layout.two_norms) {
    layer.attention_norm = norm_at(name + ".ln_attn", true);
    layer.mlp_norm = norm_at(name + ".ln_mlp", true);
  } else {
    layer.attention_norm = norm_at(name + ".input_layernorm", true);
    layer.mlp_norm =
        layout.parallel ? NormTensors{} : norm_at(name + ".post_attention_layernorm", true);
  }
  layer.up = linear_at(name + ".mlp.dense_h_to_4h", layout.biases);
  layer.down = linear_at(name + ".mlp.dense_4h_to_h", layout.biases);
  return layer;
}

}  // namespace

ModelSpec describe_falcon(const ConfigReader& config, const Checkpoint& checkpoint) {
  const FalconLayout layout = read_layout(config);
  ModelSpec spec;
  spec.hidden_size = config.count({"hidden_size"});
  set_heads(spec, config, {"num_attention_heads", "n_head"}, std::nullopt);
  const std::int64_t layers =
      read_layer_count(config, {"num_hidden_layers", "n_layer"}, checkpoint);
  spec.intermediate_size =
      config.optional_count({"ffn_hidden_size"}).value_or(4 * spec.hidden_size);
  spec.vocab_size = config.count({"vocab_size"});
  spec.max_positions = config.optional_count({"max_position_embeddings"});
  read_kv_heads(spec, config, layout, layers);
  if (config.flag_or({"alibi"}, false)) {
    spec.positions = PositionKind::kAlibi;
    spec.alibi.scaled = true;
  } else {
    read_rope(spec, config);
  }
  spec.norm = NormKind::kLayerNorm;
  spec.norm_epsilon = config.number_or({"layer_norm_epsilon"}, 1e-5);
  spec.activation = activation_from_name(config.text_or({"activation"}, "gelu"), config.where());
  spec.parallel_residual = layout.parallel;
  if (config.flag_or({"apply_residual_connection_post_layernorm"}, false)) {
    spec.not_computable = "apply_residual_connection_post_layernorm = true";
  }

  const std::string prefix =
      find_prefix(checkpoint, {"transformer.", ""}, "word_embeddings.weight");
  for (std::int64_t i = 0; i < layers; ++i) {
    spec.layers.push_back(layer_at(prefix + "h." + std::to_string(i), layout));
  }
  spec.token_embedding = prefix + "word_embeddings.weight";
  spec.final_norm = norm_at(prefix + "ln_f", true);
  name_output(spec, config, "lm_head.weight", /*tied=*/true);
  return spec;
}

}  // namespace regroup
