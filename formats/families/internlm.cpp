// InternLM (Llama with biases in attention) and InternLM2 (a fused projection per group, and other
// names).
#include "formats/base/error.h"
#include "formats/base/printable.h"
#include "formats/config/decoder_sizes.h"
#include "formats/config/rope_config.h"
#include "formats/families/families.h"
#include "formats/families/llama_layout.h"

namespace regroup {
namespace {

ModelSpec describe_internlm_common(const ConfigReader& config, const Checkpoint& checkpoint) {
  ModelSpec spec;
  read_llama_sizes(spec, config, checkpoint);
  spec.norm = NormKind::kRmsNorm;
  spec.norm_epsilon = config.number_or({"rms_norm_eps"}, 1e-6);
  spec.activation = activation_from_name(config.text_or({"hidden_act"}, "silu"), config.where());
  return spec;
}

// InternLM has its own key, "rotary". Without it the type is "dynamic", which has an effect only
// beyond max_position_embeddings.
void read_rotary(ModelSpec& spec, const ConfigReader& config) {
  const ConfigReader rotary = config.object("rotary");
  const std::string type = rotary.text_or({"type"}, "dynamic");
  if (type != "origin" && type != "dynamic") {
    throw_bad_input("{}: rotary.type is {}, origin or dynamic is needed", config.where(),
                    printable(type));
  }
  if (config.find("rope_scaling") != nullptr) {
    spec.not_computable = "rope_scaling, which this architecture's own code ignores";
  }
  Json rope = {{"rope_theta", rotary.number_or({"base"}, 10000.0)}};
  if (type == "dynamic") {
    rope["rope_scaling"] = {{"type", type}, {"factor", rotary.number_or({"scaling_factor"}, 1.0)}};
  }
  read_rope(spec, ConfigReader(rope, config.where()));
}

LayerTensors internlm2_layer(const std::string& name, bool bias) {
  const LinearTensors fused = linear_at(name + ".attention.wqkv", bias);
  LayerTensors layer;
  layer.attention_norm = norm_at(name + ".attention_norm", false);
  layer.attention = {
      Packing::kPerGroup, fused, fused, fused, linear_at(name + ".attention.wo", bias), {}, {}};
  layer.mlp_norm = norm_at(name + ".ffn_norm", false);
  layer.gate = linear_at(name + ".feed_forward.w1", false);
  layer.up = linear_at(name + ".feed_forward.w3", false);
  layer.down = linear_at(name + ".feed_forward.w2", false);
  return layer;
}

}  // namespace

ModelSpec describe_internlm(const ConfigReader& config, const Checkpoint& checkpoint) {
  ModelSpec spec = describe_internlm_common(config, checkpoint);
  spec.loaders_read_kv_heads = false;
  spec.max_positions = spec.max_positions.value_or(2048);
  read_rotary(spec, config);
  const bool bias = config.flag_or({"bias"}, true);
  name_llama_tensors(spec, config, checkpoint, {.qkv = bias, .o = bias});
  return spec;
}

ModelSpec describe_internlm2(const ConfigReader& config, const Checkpoint& checkpoint) {
  ModelSpec spec = describe_internlm_common(config, checkpoint);
  spec.max_positions = spec.max_positions.value_or(2048);
  read_rope(spec, config);
  const bool bias = config.flag_or({"bias"}, true);
  const std::string prefix = find_prefix(checkpoint, {"model.", ""}, "tok_embeddings.weight");
  for (std::size_t i = 0; i < spec.layers.size(); ++i) {
    spec.layers[i] = internlm2_layer(prefix + "layers." + std::to_string(i), bias);
  }
  spec.token_embedding = prefix + "tok_embeddings.weight";
  spec.final_norm = norm_at(prefix + "norm", false);
  name_output(spec, config, "output.weight", /*tied=*/false);
  return spec;
}

}  // namespace regroup
