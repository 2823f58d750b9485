// MPT as transformers computes it: fused q‖k‖v, ALiBi, LayerNorm without biases.
#include <fmt/format.h>

#include "formats/base/printable.h"
#include "formats/config/decoder_sizes.h"
#include "formats/families/families.h"

namespace regroup {
namespace {

// Settings that MPT's own code reads and transformers' loader ignores. A model that uses them would
// be computed wrongly.
std::string unsupported_setting(const ConfigReader& config, const ConfigReader& attention) {
  if (!attention.flag_or({"alibi"}, true)) {
    return "attn_config.alibi = false";
  }
  if (attention.flag_or({"qk_ln"}, false)) {
    return "attn_config.qk_ln = true";
  }
  for (const char* key : {"prefix_lm", "rope", "qk_gn"}) {
    if (attention.flag_or({key}, false)) {
      return fmt::format("attn_config.{} = true", key);
    }
  }
  if (attention.number_or({"sliding_window_size"}, -1.0) > 0.0) {
    return "attn_config.sliding_window_size";
  }
  const std::string norm = config.text_or({"norm_type"}, "layernorm");
  if (norm != "layernorm" && norm != "low_precision_layernorm") {
    return "norm_type " + printable(norm);
  }
  if (!config.flag_or({"no_bias"}, true)) {
    return "no_bias = false";
  }
  return config.find("logit_scale") != nullptr ? "logit_scale" : "";
}

void read_mpt_sizes(ModelSpec& spec, const ConfigReader& config, const ConfigReader& attention,
                    const Checkpoint& checkpoint) {
  spec.hidden_size = config.count({"d_model", "hidden_size"});
  set_heads(spec, config, {"n_heads", "num_attention_heads"}, std::nullopt);
  const std::int64_t layers =
      read_layer_count(config, {"n_layers", "num_hidden_layers"}, checkpoint);
  spec.layers.resize(static_cast<std::size_t>(layers));
  spec.intermediate_size =
      config.optional_count({"expansion_ratio"}).value_or(4) * spec.hidden_size;
  spec.vocab_size = config.count({"vocab_size"});
  spec.max_positions = config.optional_count({"max_seq_len"});
  spec.kv_heads = attention.kv_heads("kv_n_heads", layers, spec.query_heads, spec.query_heads);
  spec.kv_heads_key = {"attn_config", "kv_n_heads"};
}

void read_mpt_attention(ModelSpec& spec, const ConfigReader& attention) {
  spec.positions = PositionKind::kAlibi;
  spec.alibi.bias_max = attention.number_or({"alibi_bias_max"}, 8.0);
  const double clip = attention.number_or({"clip_qkv"}, 0.0);
  if (clip > 0.0) {
    spec.clip_qkv = clip;
  }
  if (attention.find("softmax_scale") != nullptr) {
    spec.attention_scale = attention.number_or({"softmax_scale"}, 0.0);
  }
}

LayerTensors mpt_layer(const std::string& name) {
  const LinearTensors fused = linear_at(name + ".attn.Wqkv", false);
  LayerTensors layer;
  layer.attention_norm = norm_at(name + ".norm_1", false);
  layer.attention = {Packing::kQueryKeyValue,
                     fused,
                     fused,
                     fused,
                     linear_at(name + ".attn.out_proj", false),
                     {},
                     {}};
  layer.mlp_norm = norm_at(name + ".norm_2", false);
  layer.up = linear_at(name + ".ffn.up_proj", false);
  layer.down = linear_at(name + ".ffn.down_proj", false);
  return layer;
}

}  // namespace

ModelSpec describe_mpt(const ConfigReader& config, const Checkpoint& checkpoint) {
  const ConfigReader attention = config.object("attn_config");
  ModelSpec spec;
  read_mpt_sizes(spec, config, attention, checkpoint);
  read_mpt_attention(spec, attention);
  spec.norm = NormKind::kLayerNorm;
  spec.norm_epsilon = config.number_or({"layer_norm_epsilon"}, 1e-5);
  spec.activation = Activation::kGeluErf;
  spec.not_computable = unsupported_setting(config, attention);
  const std::string prefix = find_prefix(checkpoint, {"transformer.", ""}, "wte.weight");
  for (std::size_t i = 0; i < spec.layers.size(); ++i) {
    spec.layers[i] = mpt_layer(prefix + "blocks." + std::to_string(i));
  }
  spec.token_embedding = prefix + "wte.weight";
  spec.final_norm = norm_at(prefix + "norm_f", false);
  name_output(spec, config, "lm_head.weight", /*tied=*/true);
  return spec;
}

}  // namespace regroup
