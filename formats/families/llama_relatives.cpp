// Families with Llama's attention tensors in other blocks: Phi, StableLM, Starcoder2, Nemotron. All
// of them use LayerNorm.
#include "formats/config/decoder_sizes.h"
#include "formats/config/rope_config.h"
#include "formats/families/families.h"
#include "formats/families/llama_layout.h"

namespace regroup {
namespace {

ModelSpec describe_common(const ConfigReader& config, const Checkpoint& checkpoint,
                          const LlamaDefaults& defaults, std::string_view epsilon_key,
                          const std::string& default_activation, double default_partial) {
  ModelSpec spec;
  read_llama_sizes(spec, config, checkpoint, defaults);
  read_rope(spec, config, {.partial = default_partial});
  spec.norm = NormKind::kLayerNorm;
  spec.norm_epsilon = config.number_or({epsilon_key}, 1e-5);
  spec.activation =
      activation_from_name(config.text_or({"hidden_act"}, default_activation), config.where());
  return spec;
}

// An MLP of two maps, `up` and `down`, instead of a gated one.
void name_plain_mlp(ModelSpec& spec, const Checkpoint& checkpoint, const std::string& up,
                    const std::string& down, bool bias) {
  for (std::int64_t i = 0; i < spec.layer_count(); ++i) {
    const std::string name = llama_layer_name(checkpoint, i) + ".mlp.";
    LayerTensors& layer = spec.layers[static_cast<std::size_t>(i)];
    layer.gate = {};
    layer.up = linear_at(name + up, bias);
    layer.down = linear_at(name + down, bias);
  }
}

std::vector<NormTensors> norms_of_heads(const std::string& name, std::int64_t heads) {
  std::vector<NormTensors> norms;
  for (std::int64_t h = 0; h < heads; ++h) {
    norms.push_back(norm_at(name + ".norms." + std::to_string(h), false));
  }
  return norms;
}

}  // namespace

ModelSpec describe_phi(const ConfigReader& config, const Checkpoint& checkpoint) {
  ModelSpec spec = describe_common(config, checkpoint, {}, "layer_norm_eps", "gelu_new", 0.5);
  spec.parallel_residual = true;
  name_llama_tensors(spec, config, checkpoint, {true, true, true, true});
  name_plain_mlp(spec, checkpoint, "fc1", "fc2", true);
  const bool qk_norm = config.flag_or({"qk_layernorm"}, false);
  spec.qk_norm = qk_norm ? QkNorm::kSharedAcrossHeads : QkNorm::kNone;
  for (std::int64_t i = 0; i < spec.layer_count(); ++i) {
    const std::string name = llama_layer_name(checkpoint, i) + ".self_attn.";
    LayerTensors& layer = spec.layers[static_cast<std::size_t>(i)];
    layer.mlp_norm = {};
    layer.attention.o = linear_at(name + "dense", true);
    if (qk_norm) {
      layer.attention.q_norms = {norm_at(name + "q_layernorm", true)};
      layer.attention.k_norms = {norm_at(name + "k_layernorm", true)};
    }
  }
  const std::string prefix = find_prefix(checkpoint, {"model.", ""}, "embed_tokens.weight");
  spec.final_norm = norm_at(prefix + "final_layernorm", true);
  spec.lm_head_bias = "lm_head.bias";
  return spec;
}

ModelSpec describe_stablelm(const ConfigReader& config, const Checkpoint& checkpoint) {
  ModelSpec spec =
      describe_common(config, checkpoint, {.kv_heads = 32}, "layer_norm_eps", "silu", 0.25);
  spec.parallel_residual = config.flag_or({"use_parallel_residual"}, false);
  name_llama_tensors(spec, config, checkpoint,
                     {.qkv = config.flag_or({"use_qkv_bias"}, false), .norm = true});
  const bool qk_norm = config.flag_or({"qk_layernorm"}, false);
  spec.qk_norm = qk_norm ? QkNorm::kPerHead : QkNorm::kNone;
  for (std::size_t i = 0; i < spec.layers.size(); ++i) {
    const std::string name =
        llama_layer_name(checkpoint, static_cast<std::int64_t>(i)) + ".self_attn.";
    LayerTensors& layer = spec.layers[i];
    if (spec.parallel_residual) {
      layer.mlp_norm = {};
    }
    if (qk_norm) {
      layer.attention.q_norms = norms_of_heads(name + "q_layernorm", spec.query_heads);
      layer.attention.k_norms = norms_of_heads(name + "k_layernorm", spec.kv_heads[i]);
    }
  }
  return spec;
}

ModelSpec describe_starcoder2(const ConfigReader& config, const Checkpoint& checkpoint) {
  ModelSpec spec = describe_common(config, checkpoint, {.kv_heads = 2}, "norm_epsilon",
                                   "gelu_pytorch_tanh", 1.0);
  const bool bias = config.flag_or({"use_bias"}, true);
  spec.sliding_window = config.optional_count({"sliding_window"});
  name_llama_tensors(spec, config, checkpoint, {bias, bias, bias, true}, /*tied_by_default=*/true);
  name_plain_mlp(spec, checkpoint, "c_fc", "c_proj", bias);
  return spec;
}

ModelSpec describe_nemotron(const ConfigReader& config, const Checkpoint& checkpoint) {
  ModelSpec spec = describe_common(config, checkpoint, {}, "norm_eps", "relu2", 0.5);
  spec.norm_weight_offset = 1.0;
  const bool attention_bias = config.flag_or({"attention_bias"}, false);
  const bool mlp_bias = config.flag_or({"mlp_bias"}, false);
  name_llama_tensors(spec, config, checkpoint, {attention_bias, attention_bias, mlp_bias, true});
  name_plain_mlp(spec, checkpoint, "up_proj", "down_proj", mlp_bias);
  return spec;
}

}  // namespace regroup
