// GPTBigCode (Starcoder): GPT-2's graph with plain linear maps; one kv head, or [H, 3, d].
#include "formats/config/decoder_sizes.h"
#include "formats/families/families.h"
#include "formats/families/gpt_layout.h"

namespace regroup {
namespace {

LayerTensors bigcode_layer(const std::string& name) {
  const LinearTensors fused = linear_at(name + ".attn.c_attn", true);
  LayerTensors layer;
  layer.attention_norm = norm_at(name + ".ln_1", true);
  // q‖k‖v of one kv head is the per-group packing with one group.
  layer.attention = {
      Packing::kPerGroup, fused, fused, fused, linear_at(name + ".attn.c_proj", true), {}, {}};
  layer.mlp_norm = norm_at(name + ".ln_2", true);
  layer.up = linear_at(name + ".mlp.c_fc", true);
  layer.down = linear_at(name + ".mlp.c_proj", true);
  return layer;
}

}  // namespace

ModelSpec describe_gpt_bigcode(const ConfigReader& config, const Checkpoint& checkpoint) {
  ModelSpec spec;
  const std::string prefix = read_gpt_frame(spec, config, checkpoint, "gelu_pytorch_tanh");
  use_learned_positions(spec, config, prefix);
  const bool multi_query = config.flag_or({"multi_query"}, true);
  spec.kv_heads = config.kv_heads("num_key_value_heads", spec.layer_count(), spec.query_heads,
                                  multi_query ? 1 : spec.query_heads);
  spec.multi_query_key = "multi_query";
  if (!config.flag_or({"scale_attn_weights"}, true)) {
    spec.attention_scale = 1.0;
  }
  if (config.flag_or({"add_cross_attention"}, false)) {
    spec.not_computable = "add_cross_attention = true";
  }
  for (std::size_t i = 0; i < spec.layers.size(); ++i) {
    spec.layers[i] = bigcode_layer(prefix + "h." + std::to_string(i));
  }
  name_output(spec, config, "lm_head.weight", /*tied=*/true);
  return spec;
}

}  // namespace regroup
