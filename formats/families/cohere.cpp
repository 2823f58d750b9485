// Command-R: Llama's tensors in a parallel block with one LayerNorm, and interleaved RoPE.
// Command-R7B and Command-A (cohere2) have a window in three of four layers, and RoPE only there.
#include "formats/base/error.h"
#include "formats/config/decoder_sizes.h"
#include "formats/config/layer_windows.h"
#include "formats/config/rope_config.h"
#include "formats/families/families.h"
#include "formats/families/llama_layout.h"

namespace regroup {
namespace {

ModelSpec describe_common(const ConfigReader& config, const Checkpoint& checkpoint, double theta) {
  ModelSpec spec;
  read_llama_sizes(spec, config, checkpoint);
  read_rope(spec, config, {.theta = theta});
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

}  // namespace

ModelSpec describe_cohere(const ConfigReader& config, const Checkpoint& checkpoint) {
  if (config.flag_or({"use_qk_norm"}, false)) {
    throw_bad_input(
        "{}: use_qk_norm: each key head has a norm of its own, so heads cannot be shared",
        config.where());
  }
  return describe_common(config, checkpoint, 500000.0);
}

ModelSpec describe_cohere2(const ConfigReader& config, const Checkpoint& checkpoint) {
  ModelSpec spec = describe_common(config, checkpoint, 10000.0);
  read_layer_windows(spec, config, config.optional_count({"sliding_window_pattern"}).value_or(4));
  for (LayerTensors& layer : spec.layers) {
    layer.without_rope = !spec.window_of(layer);
  }
  return spec;
}

}  // namespace regroup
