// Phi-3 and Phi-4: Llama's block with fused projections, q‖k‖v and gate‖up.
#include "formats/config/decoder_sizes.h"
#include "formats/config/rope_config.h"
#include "formats/families/families.h"
#include "formats/families/llama_layout.h"

namespace regroup {

ModelSpec describe_phi3(const ConfigReader& config, const Checkpoint& checkpoint) {
  ModelSpec spec;
  read_llama_sizes(spec, config, checkpoint);
  read_rope(spec, config, {.original_positions = 4096.0});
  spec.norm = NormKind::kRmsNorm;
  spec.norm_epsilon = config.number_or({"rms_norm_eps"}, 1e-5);
  spec.activation = activation_from_name(config.text_or({"hidden_act"}, "silu"), config.where());
  spec.sliding_window = config.optional_count({"sliding_window"});
  name_llama_tensors(spec, config, checkpoint, {});
  for (std::int64_t i = 0; i < spec.layer_count(); ++i) {
    const std::string name = llama_layer_name(checkpoint, i);
    LayerTensors& layer = spec.layers[static_cast<std::size_t>(i)];
    AttentionLayout& attention = layer.attention;
    attention.packing = Packing::kQueryKeyValue;
    attention.q = attention.k = attention.v = linear_at(name + ".self_attn.qkv_proj", false);
    layer.gate = layer.up = linear_at(name + ".mlp.gate_up_proj", false);
  }
  return spec;
}

}  // namespace regroup
