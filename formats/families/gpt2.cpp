// GPT-2: q‖k‖v fused in a Conv1D, which stores its weight input-major.
#include "formats/config/decoder_sizes.h"
#include "formats/families/families.h"
#include "formats/families/gpt_layout.h"

namespace regroup {
namespace {

LinearTensors conv1d_at(const std::string& name) {
  return {name + ".weight", name + ".bias", true};
}

LayerTensors gpt2_layer(const std::string& name) {
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

// Variations that change the computation. GPT-2's own checkpoints use none of them.
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
  const std::string prefix = read_gpt_frame(spec, config, checkpoint, "gelu_new");
  use_learned_positions(spec, config, prefix);
  spec.not_computable = unsupported_variation(config);
  for (std::size_t i = 0; i < spec.layers.size(); ++i) {
    spec.layers[i] = gpt2_layer(prefix + "h." + std::to_string(i));
  }
  name_output(spec, config, "lm_head.weight", /*tied=*/true);
  return spec;
}

}  // namespace regroup
