#include <algorithm>
#include <cmath>
#include <vector>

#include "formats/base/error.h"
#include "formats/families/families.h"
#include "formats/spec/config_reader.h"

namespace regroup {

namespace {

std::string prefix_of(const Checkpoint& checkpoint) {
  return find_prefix(checkpoint, {"model.", ""}, "embed_tokens.weight");
}

}  // namespace

void read_llama_frame(ModelSpec& spec, const ConfigReader& config, const Checkpoint& checkpoint,
                      const LlamaDefaults& defaults) {
  spec.hidden_size = config.count({"hidden_size"});
  auto head_dim = config.optional_count({"head_dim"});
  if (!head_dim && defaults.head_dim > 0 && !config.mentions("head_dim")) {
    head_dim = defaults.head_dim;
  }
  set_heads(spec, config, {"num_attention_heads"}, head_dim);
  const std::int64_t layers = read_layer_count(config, {"num_hidden_layers"}, checkpoint);
  spec.layers.resize(static_cast<std::size_t>(layers));
  spec.vocab_size = config.count({"vocab_size"});
  spec.max_positions = config.optional_count({"max_position_embeddings"});
}

void read_llama_sizes(ModelSpec& spec, const ConfigReader& config, const Checkpoint& checkpoint,
                      const LlamaDefaults& defaults) {
  read_llama_frame(spec, config, checkpoint, defaults);
  spec.intermediate_size = config.count({"intermediate_size"});
  // In all these families, null means as many kv heads as query heads.
  const bool silent = defaults.kv_heads > 0 && !config.mentions("num_key_value_heads");
  spec.kv_heads = config.kv_heads("num_key_value_heads", spec.layer_count(), spec.query_heads,
                                  silent ? defaults.kv_heads : spec.query_heads);
  spec.loaders_read_kv_heads = true;
}

void name_llama_tensors(ModelSpec& spec, const ConfigReader& config, const Checkpoint& checkpoint,
                        const LlamaBiases& biases, bool tied_by_default) {
  for (std::int64_t i = 0; i < spec.layer_count(); ++i) {
    const std::string name = llama_layer_name(checkpoint, i);
    const std::string attention = name + ".self_attn.";
    LayerTensors& layer = spec.layers[static_cast<std::size_t>(i)];
    layer.attention_norm = norm_at(name + ".input_layernorm", biases.norm);
    layer.attention.packing = Packing::kSeparate;
    layer.attention.q = linear_at(attention + "q_proj", biases.qkv);
    layer.attention.k = linear_at(attention + "k_proj", biases.qkv);
    layer.attention.v = linear_at(attention + "v_proj", biases.qkv);
    layer.attention.o = linear_at(attention + "o_proj", biases.o);
    layer.mlp_norm = norm_at(name + ".post_attention_layernorm", biases.norm);
    layer.gate = linear_at(name + ".mlp.gate_proj", biases.mlp);
    layer.up = linear_at(name + ".mlp.up_proj", biases.mlp);
    layer.down = linear_at(name + ".mlp.down_proj", biases.mlp);
  }
  spec.token_embedding = prefix_of(checkpoint) + "embed_tokens.weight";
  spec.final_norm = norm_at(prefix_of(checkpoint) + "norm", biases.norm);
  name_output(spec, config, "lm_head.weight", tied_by_default);
}

LlamaBiases llama_biases(const ConfigReader& config) {
  const bool attention = config.flag_or({"attention_bias"}, false);
  return {attention, attention, config.flag_or({"mlp_bias"}, false), false};
}

ModelSpec describe_llama_like(const ConfigReader& config, const Checkpoint& checkpoint,
                              const LlamaDefaults& defaults, double default_epsilon,
                              const RopeDefaults& rope) {
  ModelSpec spec;
  read_llama_sizes(spec, config, checkpoint, defaults);
  read_rope(spec, config, rope);
  spec.norm = NormKind::kRmsNorm;
  spec.norm_epsilon = config.number_or({"rms_norm_eps"}, default_epsilon);
  spec.activation = activation_from_name(config.text_or({"hidden_act"}, "silu"), config.where());
  return spec;
}

// A model slides in the listed layers, or in all from max_window_layers on.
void read_qwen_window(ModelSpec& spec, const ConfigReader& config) {
  constexpr std::int64_t kWindowUnlessGiven = 4096;
  constexpr double kFirstUnlessGiven = 28.0;
  const bool none = config.mentions("sliding_window") && config.find("sliding_window") == nullptr;
  if (!config.flag_or({"use_sliding_window"}, false) || none) {
    return;
  }
  const double first = config.number_or({"max_window_layers"}, kFirstUnlessGiven);
  std::vector<bool> slides(spec.layers.size());
  for (std::size_t i = 0; i < slides.size(); ++i) {
    slides[i] = static_cast<double>(i) >= first;
  }
  set_windows(spec, listed_windows(config, slides.size()).value_or(slides),
              config.optional_count({"sliding_window"}).value_or(kWindowUnlessGiven));
}

void add_qk_norms(ModelSpec& spec, const Checkpoint& checkpoint, QkNorm kind) {
  spec.qk_norm = kind;
  for (std::int64_t i = 0; i < spec.layer_count(); ++i) {
    const std::string name = llama_layer_name(checkpoint, i) + ".self_attn.";
    AttentionLayout& attention = spec.layers[static_cast<std::size_t>(i)].attention;
    attention.q_norms = {norm_at(name + "q_norm", false)};
    attention.k_norms = {norm_at(name + "k_norm", false)};
  }
}

std::string llama_layer_name(const Checkpoint& checkpoint, std::int64_t layer) {
  return prefix_of(checkpoint) + "layers." + std::to_string(layer);
}

// Llama and the models that share its graph: Mistral, Qwen2, Qwen3, Granite, SmolLM3.

namespace {

// Marks SmolLM3's layers without RoPE: those with a 0 in no_rope_layers, or every fourth.
void read_layers_without_rope(ModelSpec& spec, const ConfigReader& config) {
  const std::int64_t interval = config.optional_count({"no_rope_layer_interval"}).value_or(4);
  const Json* listed = config.find("no_rope_layers");
  const bool fits = listed == nullptr ||
                    (listed->is_array() && listed->size() >= spec.layers.size() &&
                     std::all_of(listed->begin(), listed->end(),
                                 [](const Json& rotates) { return rotates == 0 || rotates == 1; }));
  if (!fits) {
    throw_bad_input("{}: no_rope_layers must list 1 (with RoPE) or 0 for each of the {} layers",
                    config.where(), spec.layers.size());
  }
  for (std::size_t i = 0; i < spec.layers.size(); ++i) {
    spec.layers[i].without_rope =
        listed != nullptr ? (*listed)[i] == 0 : (static_cast<std::int64_t>(i) + 1) % interval == 0;
  }
}

}  // namespace

ModelSpec describe_llama(const ConfigReader& config, const Checkpoint& checkpoint) {
  ModelSpec spec = describe_llama_like(config, checkpoint, {});
  name_llama_tensors(spec, config, checkpoint, llama_biases(config));
  return spec;
}

ModelSpec describe_mistral(const ConfigReader& config, const Checkpoint& checkpoint) {
  ModelSpec spec = describe_llama_like(config, checkpoint, {.kv_heads = 8});
  // The default is 4096. null means no window.
  spec.sliding_window = config.optional_count({"sliding_window"});
  if (!config.mentions("sliding_window")) {
    spec.sliding_window = 4096;
  }
  name_llama_tensors(spec, config, checkpoint, {});
  return spec;
}

ModelSpec describe_qwen2(const ConfigReader& config, const Checkpoint& checkpoint) {
  ModelSpec spec = describe_llama_like(config, checkpoint, {.kv_heads = 32});
  read_qwen_window(spec, config);
  name_llama_tensors(spec, config, checkpoint, {.qkv = true});
  return spec;
}

ModelSpec describe_qwen3(const ConfigReader& config, const Checkpoint& checkpoint) {
  ModelSpec spec = describe_llama_like(config, checkpoint, {.kv_heads = 32, .head_dim = 128});
  read_qwen_window(spec, config);
  name_llama_tensors(spec, config, checkpoint, llama_biases(config));
  add_qk_norms(spec, checkpoint, QkNorm::kSharedAcrossHeads);
  return spec;
}

ModelSpec describe_granite(const ConfigReader& config, const Checkpoint& checkpoint) {
  ModelSpec spec = describe_llama_like(config, checkpoint, {});
  spec.embedding_scale = config.number_or({"embedding_multiplier"}, 1.0);
  spec.attention_scale = config.number_or({"attention_multiplier"}, 1.0);
  spec.residual_scale = config.number_or({"residual_multiplier"}, 1.0);
  spec.output_scale = 1.0 / config.number_or({"logits_scaling"}, 1.0);
  if (!std::isfinite(spec.output_scale)) {
    throw_bad_input("{}: logits_scaling is 0, another number is needed", config.where());
  }
  name_llama_tensors(spec, config, checkpoint, llama_biases(config));
  return spec;
}

ModelSpec describe_smollm3(const ConfigReader& config, const Checkpoint& checkpoint) {
  ModelSpec spec = describe_llama_like(config, checkpoint, {.kv_heads = 4},
                                       /*default_epsilon=*/1e-6, {.theta = 2000000.0});
  read_layers_without_rope(spec, config);
  if (config.flag_or({"use_sliding_window"}, false) && config.find("sliding_window") != nullptr) {
    std::vector<bool> slides;
    for (const LayerTensors& layer : spec.layers) {
      slides.push_back(layer.without_rope);
    }
    set_windows(spec, listed_windows(config, slides.size()).value_or(slides),
                config.count({"sliding_window"}));
  }
  name_llama_tensors(spec, config, checkpoint, llama_biases(config), /*tied_by_default=*/true);
  return spec;
}

// Families with Llama's attention tensors in other blocks: Phi, StableLM, Starcoder2, Nemotron. All
// of them use LayerNorm.

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

// Qwen (the first): Llama's block in GPT-2's names, with q‖k‖v in one tensor with a bias.
//
// Beyond seq_length tokens its code changes the base of RoPE (use_dynamic_ntk) and multiplies
// queries by a logarithm of their position (use_logn_attn). Both are not computed here; up to
// seq_length tokens they have no effect.

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

// Phi-3 and Phi-4: Llama's block with fused projections, q‖k‖v and gate‖up.

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
