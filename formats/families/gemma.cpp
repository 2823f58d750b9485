// Decoders with Llama's block and other norms, scales or caps.
#include <cmath>

#include "formats/base/error.h"
#include "formats/families/families.h"
#include "formats/spec/config_reader.h"

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
ModelSpec describe_gemma_with_windows(const ModelConfig& config, std::int64_t pattern) {
  constexpr double kScalarUnlessGiven = 256.0;
  ModelSpec spec;
  read_llama_sizes(spec, config, {.kv_heads = 4, .head_dim = 256});
  read_layer_windows(spec, config, pattern);
  scale_like_gemma(spec);
  spec.norm_epsilon = config.number_or({"rms_norm_eps"}, 1e-6);
  spec.norm_placement = NormPlacement::kAround;
  spec.activation = config.activation_or({"hidden_activation"}, "gelu_pytorch_tanh");
  spec.attention_scale =
      1.0 / std::sqrt(positive_number(config, "query_pre_attn_scalar", kScalarUnlessGiven));
  if (config.flag_or({"use_bidirectional_attention"}, false)) {
    spec.not_computable = "use_bidirectional_attention";
  }
  name_llama_tensors(spec, config, llama_biases(config), /*tied_by_default=*/true);
  for (std::size_t i = 0; i < spec.layers.size(); ++i) {
    const std::string name = llama_layer_name(config, i);
    LayerTensors& layer = spec.layers[i];
    layer.attention_output_norm = layer.mlp_norm;  // post_attention_layernorm
    layer.mlp_norm = norm_at(name + ".pre_feedforward_layernorm", false);
    layer.mlp_output_norm = norm_at(name + ".post_feedforward_layernorm", false);
  }
  return spec;
}

void name_olmo2_tensors(ModelSpec& spec, const ModelConfig& config) {
  spec.norm_placement = NormPlacement::kAfterSublayer;
  BlockNames block = kLlamaBlock;
  block.attention.norm = "post_attention_layernorm";
  block.mlp.norm = "post_feedforward_layernorm";
  name_llama_tensors(spec, config, llama_biases(config), /*tied_by_default=*/false, block);
  add_qk_norms(spec, config, QkNorm::kProjection);
}

// MiniCPM has no scale by default.
double scale_at(const ConfigReader& config, std::string_view key) {
  const double scale = config.number_or({key}, 0.0);
  if (!(scale > 0.0) || !std::isfinite(scale)) {
    throw_bad_input("{}: {} is {}, a positive number is needed", config.where(), key,
                    config.find(key) == nullptr ? "missing" : std::to_string(scale));
  }
  return scale;
}

}  // namespace

// Gemma, Gemma 2 (norms around attention and MLP, soft-capped scores and logits, a window in every
// other layer) and Gemma 3 (norms of queries and keys, another RoPE in layers with a window).

ModelSpec describe_gemma(const ModelConfig& config) {
  ModelSpec spec = describe_llama_like(config, {.kv_heads = 16, .head_dim = 256});
  scale_like_gemma(spec);
  // The weights were trained with the tanh form, which the first configs call "gelu".
  spec.activation = config.activation_or({"hidden_act"}, "gelu_pytorch_tanh");
  if (spec.activation == Activation::kGeluErf) {
    spec.activation = Activation::kGeluTanh;
  }
  name_llama_tensors(spec, config, llama_biases(config), /*tied_by_default=*/true);
  return spec;
}

ModelSpec describe_gemma2(const ModelConfig& config) {
  ModelSpec spec = describe_gemma_with_windows(config, 2);
  read_rope(spec, config);
  spec.attention_softcap = read_softcap(config, "attn_logit_softcapping", 50.0);
  spec.logit_softcap = read_softcap(config, "final_logit_softcapping", 30.0);
  return spec;
}

ModelSpec describe_gemma3(const ModelConfig& config) {
  const std::int64_t pattern = config.optional_count({"sliding_window_pattern"}).value_or(6);
  ModelSpec spec = describe_gemma_with_windows(config, pattern);
  read_rope_of_windows(spec, config, {.theta = config.number_or({"rope_theta"}, 1e6)},
                       {.theta = config.number_or({"rope_local_base_freq"}, 10000.0)});
  spec.logit_softcap = read_softcap(config, "final_logit_softcapping", std::nullopt);
  if (config.find("attn_logit_softcapping") != nullptr) {
    spec.not_computable = "attn_logit_softcapping, which transformers ignores";
  }
  add_qk_norms(spec, config, QkNorm::kSharedAcrossHeads);
  return spec;
}

// OLMo (norms without parameters), OLMo 2 (norms after attention and MLP) and OLMo 3 (a window in
// three of four layers, which scaled RoPE does not apply to).

ModelSpec describe_olmo(const ModelConfig& config) {
  ModelSpec spec = describe_llama_like(config, {});
  spec.norm = NormKind::kLayerNorm;
  spec.norm_epsilon = 1e-5;
  spec.norm_without_parameters = true;
  spec.clip_qkv = config.optional_number({"clip_qkv"});
  BlockNames block = kLlamaBlock;
  block.attention.norm = block.mlp.norm = {};
  name_llama_tensors(spec, config, llama_biases(config), /*tied_by_default=*/false, block);
  spec.final_norm = {};
  return spec;
}

ModelSpec describe_olmo2(const ModelConfig& config) {
  ModelSpec spec = describe_llama_like(config, {}, /*default_epsilon=*/1e-5);
  name_olmo2_tensors(spec, config);
  return spec;
}

ModelSpec describe_olmo3(const ModelConfig& config) {
  constexpr double kTheta = 500000.0;
  ModelSpec spec;
  read_llama_sizes(spec, config);
  read_rms_block(spec, config, 1e-5);
  read_layer_windows(spec, config, 4);
  read_rope_of_windows(spec, config, {.theta = config.number_or({"rope_theta"}, kTheta)},
                       {.theta = kTheta});
  // transformers 4 reads this key for all layers, transformers 5 for those without a window.
  if (config.number_or({"rope_theta"}, kTheta) != kTheta &&
      config.find("rope_parameters") == nullptr) {
    spec.not_computable = "rope_theta, which transformers 4 and 5 read differently";
  }
  name_olmo2_tensors(spec, config);
  return spec;
}

// MiniCPM (1, 2 and 4): Llama's block with scaled embeddings, residuals and outputs.

ModelSpec describe_minicpm(const ModelConfig& config) {
  if (config.number_or({"num_experts"}, 0.0) > 0.0) {
    throw_bad_input("{}: num_experts: models with several experts are not supported",
                    config.where());
  }
  ModelSpec spec = describe_llama_like(config, {});
  spec.embedding_scale = scale_at(config, "scale_emb");
  spec.residual_scale =
      scale_at(config, "scale_depth") / std::sqrt(static_cast<double>(spec.layer_count()));
  spec.output_scale = scale_at(config, "dim_model_base") / static_cast<double>(spec.hidden_size);
  if (spec.rope.scaling.kind != RopeScaling::Kind::kNone) {
    spec.not_computable = "rope_scaling, which MiniCPM's own code computes";
  }
  if (config.find("sparse_config") != nullptr) {
    spec.not_computable = "sparse_config";
  }
  spec.loaders_read_kv_heads = true;  // its own code does
  name_llama_tensors(spec, config, llama_biases(config), /*tied_by_default=*/true);
  return spec;
}

}  // namespace regroup
