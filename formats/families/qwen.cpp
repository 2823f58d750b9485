// Qwen (the first): Llama's block in GPT-2's names, with q‖k‖v in one tensor with a bias.
//
// Beyond seq_length tokens its code changes the base of RoPE (use_dynamic_ntk) and multiplies
// queries by a logarithm of their position (use_logn_attn). Both are not computed here; up to
// seq_length tokens they have no effect.
#include "formats/base/error.h"
#include "formats/config/decoder_sizes.h"
#include "formats/config/rope_config.h"
#include "formats/families/families.h"

namespace regroup {
namespace {

LayerTensors qwen_layer(const std::string& name, bool bias) {
  const LinearTensors fused = linear_at(name + ".attn.c_attn", true);
  LayerTensors layer;
  layer.attention_norm = norm_at(name + ".ln_1", false);
  layer.attention = {
      Packing::kQueryKeyValue, fused, fused, fused, linear_at(name + ".attn.c_proj", bias), {}, {}};
  layer.mlp_norm = norm_at(name + ".ln_2", false);
  layer.gate = linear_at(name + ".mlp.w2", bias);  // w1(x) · silu(w2(x))
  layer.up = linear_at(name + ".mlp.w1", bias);
  layer.down = linear_at(name + ".mlp.c_proj", bias);
  return layer;
}

void read_qwen_sizes(ModelSpec& spec, const ConfigReader& config, const Checkpoint& checkpoint) {
  spec.hidden_size = config.count({"hidden_size"});
  set_heads(spec, config, {"num_attention_heads"},
            config.optional_count({"kv_channels"}).value_or(128));
  const std::int64_t layers = read_layer_count(config, {"num_hidden_layers"}, checkpoint);
  spec.layers.resize(static_cast<std::size_t>(layers));
  if (spec.query_heads * spec.head_dim != spec.hidden_size) {
    throw_bad_input("{}: {} heads of kv_channels {} make no hidden size {}", config.where(),
                    spec.query_heads, spec.head_dim, spec.hidden_size);
  }
  const std::int64_t both = config.count({"intermediate_size"});  // of w1 and w2 together
  if (both % 2 != 0) {
    throw_bad_input("{}: intermediate_size is {}, an even number is needed", config.where(), both);
  }
  spec.intermediate_size = both / 2;
  spec.vocab_size = config.count({"vocab_size"});
  spec.kv_heads =
      config.kv_heads("num_key_value_heads", layers, spec.query_heads, spec.query_heads);
}

void read_qwen_length(ModelSpec& spec, const ConfigReader& config) {
  spec.max_positions = config.optional_count({"max_position_embeddings"}).value_or(8192);
  spec.limited_to_positions =
      config.flag_or({"use_dynamic_ntk"}, true) || config.flag_or({"use_logn_attn"}, true);
  if (spec.limited_to_positions) {
    spec.max_positions = config.optional_count({"seq_length"}).value_or(*spec.max_positions);
  }
}

}  // namespace

ModelSpec describe_qwen(const ConfigReader& config, const Checkpoint& checkpoint) {
  ModelSpec spec;
  read_qwen_sizes(spec, config, checkpoint);
  read_qwen_length(spec, config);
  read_rope(spec, config);
  spec.norm = NormKind::kRmsNorm;
  spec.norm_epsilon = config.number_or({"layer_norm_epsilon"}, 1e-6);
  spec.activation = Activation::kSilu;
  const std::string prefix = find_prefix(checkpoint, {"transformer.", ""}, "wte.weight");
  const bool bias = !config.flag_or({"no_bias"}, true);
  for (std::size_t i = 0; i < spec.layers.size(); ++i) {
    spec.layers[i] = qwen_layer(prefix + "h." + std::to_string(i), bias);
  }
  spec.token_embedding = prefix + "wte.weight";
  spec.final_norm = norm_at(prefix + "ln_f", false);
  name_output(spec, config, "lm_head.weight", /*tied=*/false);
  return spec;
}

}  // namespace regroup
