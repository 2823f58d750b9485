// GPT-2: q‖k‖v fused in a Conv1D, which stores its weight input-major.
#include "formats/families/decoder_sizes.h"
#include "formats/families/families.h"

namespace regroup {
namespace {

LinearTensors conv1d_at(const std::string& name) {
  return {name + ".weight", name + ".bias", true};
}

LayerTensors layer_at(const std::string& name) {
  LayerTensors layer;
  const LinearTensors fused = conv1d_at(name + ".attn.c_attn");
  layer.attention_norm = norm_at(name + ".ln_1", true);
  layer.attention = {Packing::kQueryKeyValue,          fused, fused, fused,
                     conv1d_at(name + ".attn.c_proj"), {},    {}};
  layer.mlp_norm = norm_at(name + ".ln_2", true);
  layer.up = conv1d_at(name + ".mlp.c_fc");
  layer.down = conv1d_at(name + ".mlp.c_proj");
  return layer;
}

// Variations that change the computation; GPT-2's own checkpoints use none of them.
std::string unsupported_variation(const ConfigReader& config) {
  if (!config.flag_or({"scale_attn_weights"}, true)) {
    return "scale_attn_weights = false";
  }
  if (config.flag_or({"scale_attn_by_inverse_layer_idx"}, false)) {
    return "scale_attn_by_inverse_layer_idx = true";
  }
  if (config.flag_or({"add_cross_attention"}, false)) {
    return "add_cross_attention = true";
  }
  return "";
}

}  // namespace

ModelSpec describe_gpt2(const ConfigReader& config, const Checkpoint& checkpoint) {
  ModelSpec spec;
  spec.hidden_size = config.count({"n_embd", "hidden_size"});
  set_heads(spec, config, {"n_head", "num_attention_heads"}, std::nullopt);
  const std::int64_t layers =
      read_layer_count(config, {"n_layer", "num_hidden_layers"}, checkpoint);
  spec.intermediate_size = config.optional_count({"n_inner"}).value_or(4 * spec.hidden_size);
  spec.vocab_size = config.count({"vocab_size"});
  spec.max_positions = config.count({"n_positions", "max_position_embeddings"});
  spec.kv_heads =
      config.kv_heads("num_key_value_heads", layers, spec.query_heads, spec.query_heads);

  spec.positions = PositionKind::kLearned;
  spec.norm = NormKind::kLayerNorm;
  spec.norm_epsilon = config.number_or({"layer_norm_epsilon"}, 1e-5);
  spec.activation =
      activation_from_name(config.text_or({"activation_function"}, "gelu_new"), config.where());
  spec.not_computable = unsupported_variation(config);

  const std::string prefix = find_prefix(checkpoint, {"transformer.", ""}, "wte.weight");
  for (std::int64_t i = 0; i < layers; ++i) {
    spec.layers.push_back(layer_at(prefix + "h." + std::to_string(i)));
  }
  spec.token_embedding = prefix + "wte.weight";
  spec.position_embedding = prefix + "wpe.weight";
  spec.final_norm = norm_at(prefix + "ln_f", true);
  spec.lm_head = config.flag_or({"tie_word_embeddings"}, true) ? "" : "lm_head.weight";
  return spec;
}

}  // namespace regroup
