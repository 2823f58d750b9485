// OLMo (norms without parameters), OLMo 2 (norms after attention and MLP) and OLMo 3 (a window in
// three of four layers, which scaled RoPE does not apply to).
#include "formats/config/decoder_sizes.h"
#include "formats/config/layer_windows.h"
#include "formats/config/rope_config.h"
#include "formats/families/families.h"
#include "formats/families/llama_layout.h"

namespace regroup {
namespace {

void name_olmo2_tensors(ModelSpec& spec, const ConfigReader& config, const Checkpoint& checkpoint) {
  spec.norm_placement = NormPlacement::kAfterSublayer;
  name_llama_tensors(spec, config, checkpoint, llama_biases(config));
  add_qk_norms(spec, checkpoint, QkNorm::kProjection);
  for (std::int64_t i = 0; i < spec.layer_count(); ++i) {
    LayerTensors& layer = spec.layers[static_cast<std::size_t>(i)];
    layer.attention_norm = layer.mlp_norm;  // post_attention_layernorm
    layer.mlp_norm =
        norm_at(llama_layer_name(checkpoint, i) + ".post_feedforward_layernorm", false);
  }
}

}  // namespace

ModelSpec describe_olmo(const ConfigReader& config, const Checkpoint& checkpoint) {
  ModelSpec spec = describe_llama_like(config, checkpoint, {});
  spec.norm = NormKind::kLayerNorm;
  spec.norm_epsilon = 1e-5;
  spec.norm_without_parameters = true;
  if (config.find("clip_qkv") != nullptr) {
    spec.clip_qkv = config.number_or({"clip_qkv"}, 0.0);
  }
  name_llama_tensors(spec, config, checkpoint, llama_biases(config));
  for (LayerTensors& layer : spec.layers) {
    layer.attention_norm = layer.mlp_norm = {};
  }
  spec.final_norm = {};
  return spec;
}

ModelSpec describe_olmo2(const ConfigReader& config, const Checkpoint& checkpoint) {
  ModelSpec spec = describe_llama_like(config, checkpoint, {}, /*default_epsilon=*/1e-5);
  name_olmo2_tensors(spec, config, checkpoint);
  return spec;
}

ModelSpec describe_olmo3(const ConfigReader& config, const Checkpoint& checkpoint) {
  constexpr double kTheta = 500000.0;
  ModelSpec spec;
  read_llama_sizes(spec, config, checkpoint);
  spec.norm_epsilon = config.number_or({"rms_norm_eps"}, 1e-5);
  spec.activation = activation_from_name(config.text_or({"hidden_act"}, "silu"), config.where());
  read_layer_windows(spec, config, 4);
  read_rope_of_windows(spec, config, {.theta = config.number_or({"rope_theta"}, kTheta)},
                       {.theta = kTheta});
  // transformers 4 reads this key for all layers, transformers 5 for those without a window.
  if (config.number_or({"rope_theta"}, kTheta) != kTheta &&
      config.find("rope_parameters") == nullptr) {
    spec.not_computable = "rope_theta, which transformers 4 and 5 read differently";
  }
  name_olmo2_tensors(spec, config, checkpoint);
  return spec;
}

}  // namespace regroup
