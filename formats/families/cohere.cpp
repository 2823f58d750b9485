// Command-R: Llama's tensors in a parallel block with one LayerNorm, and interleaved RoPE.
#include "formats/base/error.h"
#include "formats/config/decoder_sizes.h"
#include "formats/config/rope_config.h"
#include "formats/families/families.h"
#include "formats/families/llama_layout.h"

namespace regroup {

ModelSpec describe_cohere(const ConfigReader& config, const Checkpoint& checkpoint) {
  if (config.flag_or({"use_qk_norm"}, false)) {
    throw_bad_input(
        "{}: use_qk_norm: each key head has a norm of its own, so heads cannot be shared",
        config.where());
  }
  ModelSpec spec;
  read_llama_sizes(spec, config, checkpoint);
  read_rope(spec, config, {.theta = 500000.0});
  spec.rope.interleaved = true;
  spec.norm = NormKind::kLayerNorm;
  spec.norm_epsilon = config.number_or({"layer_norm_eps"}, 1e-5);
  spec.activation = activation_from_name(config.text_or({"hidden_act"}, "silu"), config.where());
  spec.parallel_residual = true;
  spec.output_scale = config.number_or({"logit_scale"}, 0.0625);
  const bool bias = config.flag_or({"attention_bias"}, false);
  name_llama_tensors(spec, config, checkpoint, {.qkv = bias, .o = bias}, /*tied_by_default=*/true);
  for (LayerTensors& layer : spec.layers) {
    layer.mlp_norm = {};
  }
  return spec;
}

}  // namespace regroup
