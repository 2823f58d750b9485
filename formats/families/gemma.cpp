// Gemma, Gemma 2 (norms around attention and MLP, soft-capped scores and logits, a window in every
// other layer) and Gemma 3 (norms of queries and keys, another RoPE in layers with a window).
#include <cmath>

#include "formats/base/error.h"
#include "formats/config/decoder_sizes.h"
#include "formats/config/layer_windows.h"
#include "formats/config/rope_config.h"
#include "formats/families/families.h"
#include "formats/families/llama_layout.h"

namespace regroup {
namespace {

void scale_like_gemma(ModelSpec& spec) {
  spec.norm_weight_offset = 1.0;
  spec.embedding_scale = std::sqrt(static_cast<double>(spec.hidden_size));
}

double positive_number(const ConfigReader& config, std::string_view key, double absent) {
  const double number = config.number_or({key}, absent);
  if (!(number > 0.0)) {
    throw_bad_input("{}: {} is {}, a positive number is needed", config.where(), key, number);
  }
  return number;
}

// A null means no cap.
std::optional<double> read_softcap(const ConfigReader& config, std::string_view key,
                                   std::optional<double> absent) {
  return !config.mentions(key)         ? absent
         : config.find(key) == nullptr ? std::nullopt
                                       : std::optional(positive_number(config, key, 0.0));
}

// What Gemma 2 and 3 share, apart from positions.
ModelSpec describe_gemma_with_windows(const ConfigReader& config, const Checkpoint& checkpoint,
                                      std::int64_t pattern) {
  constexpr double kScalarUnlessGiven = 256.0;
  ModelSpec spec;
  read_llama_sizes(spec, config, checkpoint, {.kv_heads = 4, .head_dim = 256});
  read_layer_windows(spec, config, pattern);
  scale_like_gemma(spec);
  spec.norm_epsilon = config.number_or({"rms_norm_eps"}, 1e-6);
  spec.norm_placement = NormPlacement::kAround;
  spec.activation = activation_from_name(config.text_or({"hidden_activation"}, "gelu_pytorch_tanh"),
                                         config.where());
  spec.attention_scale =
      1.0 / std::sqrt(positive_number(config, "query_pre_attn_scalar", kScalarUnlessGiven));
  if (config.flag_or({"use_bidirectional_attention"}, false)) {
    spec.not_computable = "use_bidirectional_attention";
  }
  name_llama_tensors(spec, config, checkpoint, llama_biases(config), /*tied_by_default=*/true);
  for (std::int64_t i = 0; i < spec.layer_count(); ++i) {
    const std::string name = llama_layer_name(checkpoint, i);
    LayerTensors& layer = spec.layers[static_cast<std::size_t>(i)];
    layer.attention_output_norm = layer.mlp_norm;  // post_attention_layernorm
    layer.mlp_norm = norm_at(name + ".pre_feedforward_layernorm", false);
    layer.mlp_output_norm = norm_at(name + ".post_feedforward_layernorm", false);
  }
  return spec;
}

}  // namespace

ModelSpec describe_gemma(const ConfigReader& config, const Checkpoint& checkpoint) {
  ModelSpec spec = describe_llama_like(config, checkpoint, {.kv_heads = 16, .head_dim = 256});
  scale_like_gemma(spec);
  // The weights were trained with the tanh form, which configs call "gelu".
  spec.activation = Activation::kGeluTanh;
  name_llama_tensors(spec, config, checkpoint, llama_biases(config), /*tied_by_default=*/true);
  return spec;
}

ModelSpec describe_gemma2(const ConfigReader& config, const Checkpoint& checkpoint) {
  ModelSpec spec = describe_gemma_with_windows(config, checkpoint, 2);
  read_rope(spec, config);
  spec.attention_softcap = read_softcap(config, "attn_logit_softcapping", 50.0);
  spec.logit_softcap = read_softcap(config, "final_logit_softcapping", 30.0);
  return spec;
}

ModelSpec describe_gemma3(const ConfigReader& config, const Checkpoint& checkpoint) {
  const std::int64_t pattern = config.optional_count({"sliding_window_pattern"}).value_or(6);
  ModelSpec spec = describe_gemma_with_windows(config, checkpoint, pattern);
  read_rope_of_windows(spec, config, {.theta = config.number_or({"rope_theta"}, 1e6)},
                       {.theta = config.number_or({"rope_local_base_freq"}, 10000.0)});
  spec.logit_softcap = read_softcap(config, "final_logit_softcapping", std::nullopt);
  if (config.find("attn_logit_softcapping") != nullptr) {
    spec.not_computable = "attn_logit_softcapping, which transformers ignores";
  }
  add_qk_norms(spec, checkpoint, QkNorm::kSharedAcrossHeads);
  return spec;
}

}  // namespace regroup
