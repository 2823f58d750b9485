#include <algorithm>
#include <cmath>
#include <vector>

#include "formats/base/error.h"
#include "formats/families/families.h"
#include "formats/spec/config_reader.h"

namespace regroup {

namespace {

std::string prefix_of(const ModelConfig& config) {
  return find_prefix(config, {"model.", ""}, "embed_tokens.weight");
}

// Marks SmolLM3's layers without RoPE: those with a 0 in no_rope_layers, or every fourth.
void read_layers_without_rope(ModelSpec& spec, const ConfigReader& config) {
  const std::int64_t interval = config.optional_count({"no_rope_layer_interval"}).value_or(4);
  const Json* listed = config.find("no_rope_layers");
  const bool fits =
      listed == nullptr || (listed->is_array() && listed->size() >= spec.layers.size() &&
                            std::ranges::all_of(*listed, [](const Json& rotates) {
                              return rotates == 0 || rotates == 1;
                            }));
  if (!fits) {
    throw_bad_input("{}: no_rope_layers must list 1 (with RoPE) or 0 for each of the {} layers",
                    config.where(), spec.layers.size());
  }
  for (std::size_t i = 0; i < spec.layers.size(); ++i) {
    spec.layers[i].without_rope =
        listed != nullptr ? (*listed)[i] == 0 : (static_cast<std::int64_t>(i) + 1) % interval == 0;
  }
}

// What the families with LayerNorm share, without tensor names.
ModelSpec describe_with_layer_norm(const ModelConfig& config, const LlamaDefaults& defaults,
                                   std::string_view epsilon_key,
                                   const std::string& default_activation,
                                   const RopeDefaults& rope) {
  ModelSpec spec;
  read_llama_sizes(spec, config, defaults);
  read_rope(spec, config, rope);
  read_layer_norm(spec, config, {epsilon_key});
  spec.activation = config.activation_or({"hidden_act"}, default_activation);
  return spec;
}

// Llama's block with an MLP of two maps.
BlockNames with_plain_mlp(std::string_view up, std::string_view down) {
  BlockNames names = kLlamaBlock;
  names.mlp = {kLlamaBlock.mlp.norm, {}, up, down};
  return names;
}

BlockNames without_mlp_norm() {
  BlockNames names = kLlamaBlock;
  names.mlp.norm = {};
  return names;
}

std::vector<NormTensors> norms_of_heads(const std::string& name, std::int64_t heads) {
  std::vector<NormTensors> norms;
  for (std::int64_t h = 0; h < heads; ++h) {
    norms.push_back(norm_at(name + ".norms." + std::to_string(h), false));
  }
  return norms;
}

ModelSpec describe_command_r(const ModelConfig& config, double theta) {
  ModelSpec spec = describe_with_layer_norm(config, {}, "layer_norm_eps", "silu", {.theta = theta});
  spec.rope.interleaved = true;
  spec.parallel_residual = true;
  spec.output_scale = config.number_or({"logit_scale"}, 0.0625);
  const bool bias = config.flag_or({"attention_bias"}, false);
  name_llama_tensors(spec, config, {.qkv = bias, .o = bias}, /*tied_by_default=*/true,
                     without_mlp_norm());
  return spec;
}

// Qwen's MLP is w1(x) · silu(w2(x)).
constexpr BlockNames kQwenBlock{Packing::kQueryKeyValue,
                                {"ln_1", "attn.c_attn", "attn.c_proj"},
                                {"ln_2", "mlp.w2", "mlp.w1", "mlp.c_proj"}};

void read_qwen_sizes(ModelSpec& spec, const ModelConfig& config) {
  read_stack_sizes(spec, config, {"hidden_size"}, {"num_attention_heads"}, {"num_hidden_layers"},
                   config.optional_count({"kv_channels"}).value_or(128));
  if (spec.query_heads * spec.head_dim != spec.hidden_size) {
    throw_bad_input("{}: {} heads of kv_channels {} make no hidden size {}", config.where(),
                    spec.query_heads, spec.head_dim, spec.hidden_size);
  }
  const std::int64_t both = config.count({"intermediate_size"});  // of w1 and w2 together
  if (both % 2 != 0) {
    throw_bad_input("{}: intermediate_size is {}, an even number is needed", config.where(), both);
  }
  spec.intermediate_size = both / 2;
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

std::string unusual_flag(const ConfigReader& config,
                         std::initializer_list<std::pair<std::string_view, bool>> usual) {
  for (const auto& [key, value] : usual) {
    if (config.flag_or({key}, value) != value) {
      return fmt::format("{} = {}", key, !value);
    }
  }
  return "";
}

void read_llama_frame(ModelSpec& spec, const ModelConfig& config, const LlamaDefaults& defaults) {
  spec.hidden_size = config.count({"hidden_size"});
  auto head_dim = config.optional_count({"head_dim"});
  if (!head_dim && defaults.head_dim > 0 && !config.mentions("head_dim")) {
    head_dim = defaults.head_dim;
  }
  set_heads(spec, config, {"num_attention_heads"}, head_dim);
  read_layers(spec.layers, config, {"num_hidden_layers"});
  spec.vocab_size = config.count({"vocab_size"});
  spec.max_positions = config.optional_count({"max_position_embeddings"});
}

void read_llama_sizes(ModelSpec& spec, const ModelConfig& config, const LlamaDefaults& defaults) {
  read_llama_frame(spec, config, defaults);
  spec.intermediate_size = config.count({"intermediate_size"});
  // In all these families, null means as many kv heads as query heads.
  const bool silent = defaults.kv_heads > 0 && !config.mentions("num_key_value_heads");
  spec.kv_heads = config.kv_heads("num_key_value_heads", spec.layer_count(), spec.query_heads,
                                  silent ? defaults.kv_heads : spec.query_heads);
  spec.loaders_read_kv_heads = true;
}

void name_llama_tensors(ModelSpec& spec, const ModelConfig& config, const BlockBiases& biases,
                        bool tied_by_default, const BlockNames& block) {
  name_stack(spec, config, {"model.", "embed_tokens", "layers.", "norm"}, block, biases);
  name_output(spec, config, "lm_head.weight", tied_by_default);
}

BlockBiases llama_biases(const ConfigReader& config) {
  const bool attention = config.flag_or({"attention_bias"}, false);
  return {attention, attention, config.flag_or({"mlp_bias"}, false), false};
}

void read_rms_block(ModelSpec& spec, const ConfigReader& config, double default_epsilon) {
  spec.norm = NormKind::kRmsNorm;
  spec.norm_epsilon = config.number_or({"rms_norm_eps"}, default_epsilon);
  spec.activation = config.activation_or({"hidden_act"}, "silu");
}

ModelSpec describe_llama_like(const ModelConfig& config, const LlamaDefaults& defaults,
                              double default_epsilon, const RopeDefaults& rope) {
  ModelSpec spec;
  read_llama_sizes(spec, config, defaults);
  read_rope(spec, config, rope);
  read_rms_block(spec, config, default_epsilon);
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
  const auto slides = [&](std::size_t layer) { return static_cast<double>(layer) >= first; };
  set_windows(spec, sliding_layers(config, spec.layers.size(), slides),
              config.optional_count({"sliding_window"}).value_or(kWindowUnlessGiven));
}

void add_qk_norms(ModelSpec& spec, const ModelConfig& config, QkNorm kind, const std::string& name,
                  bool bias) {
  spec.qk_norm = kind;
  for (std::size_t i = 0; i < spec.layers.size(); ++i) {
    const std::string attention = llama_layer_name(config, i) + ".self_attn.";
    spec.layers[i].attention.q_norms = {norm_at(attention + "q_" + name, bias)};
    spec.layers[i].attention.k_norms = {norm_at(attention + "k_" + name, bias)};
  }
}

std::string llama_layer_name(const ModelConfig& config, std::size_t layer) {
  return prefix_of(config) + "layers." + std::to_string(layer);
}

// Llama and the models that share its graph: Mistral, Qwen2, Qwen3, Granite, SmolLM3.

ModelSpec describe_llama(const ModelConfig& config) {
  ModelSpec spec = describe_llama_like(config, {});
  name_llama_tensors(spec, config, llama_biases(config));
  return spec;
}

ModelSpec describe_mistral(const ModelConfig& config) {
  ModelSpec spec = describe_llama_like(config, {.kv_heads = 8});
  const bool unlimited =
      config.mentions("sliding_window") && config.find("sliding_window") == nullptr;
  if (unlimited || config.find("layer_types") == nullptr) {
    read_sliding_window(spec, config);
  } else {  // transformers takes it for Ministral
    read_layer_windows(spec, config, /*pattern=*/1);
  }
  name_llama_tensors(spec, config, {});
  return spec;
}

ModelSpec describe_qwen2(const ModelConfig& config) {
  ModelSpec spec = describe_llama_like(config, {.kv_heads = 32});
  read_qwen_window(spec, config);
  name_llama_tensors(spec, config, {.qkv = true});
  return spec;
}

ModelSpec describe_qwen3(const ModelConfig& config) {
  ModelSpec spec = describe_llama_like(config, {.kv_heads = 32, .head_dim = 128});
  read_qwen_window(spec, config);
  name_llama_tensors(spec, config, llama_biases(config));
  add_qk_norms(spec, config, QkNorm::kSharedAcrossHeads);
  return spec;
}

ModelSpec describe_granite(const ModelConfig& config) {
  ModelSpec spec = describe_llama_like(config, {});
  spec.embedding_scale = config.number_or({"embedding_multiplier"}, 1.0);
  spec.attention_scale = config.number_or({"attention_multiplier"}, 1.0);
  spec.residual_scale = config.number_or({"residual_multiplier"}, 1.0);
  spec.output_scale = 1.0 / config.number_or({"logits_scaling"}, 1.0);
  if (!std::isfinite(spec.output_scale)) {
    throw_bad_input("{}: logits_scaling is 0, another number is needed", config.where());
  }
  name_llama_tensors(spec, config, llama_biases(config));
  return spec;
}

ModelSpec describe_smollm3(const ModelConfig& config) {
  ModelSpec spec = describe_llama_like(config, {.kv_heads = 4},
                                       /*default_epsilon=*/1e-6, {.theta = 2000000.0});
  read_layers_without_rope(spec, config);
  if (config.flag_or({"use_sliding_window"}, false) && config.find("sliding_window") != nullptr) {
    const auto slides = [&](std::size_t layer) { return spec.layers[layer].without_rope; };
    set_windows(spec, sliding_layers(config, spec.layers.size(), slides),
                config.count({"sliding_window"}));
  }
  name_llama_tensors(spec, config, llama_biases(config), /*tied_by_default=*/true);
  return spec;
}

// Families with Llama's attention tensors in other blocks: Phi, StableLM, Starcoder2, Nemotron,
// Command-R. All of them use LayerNorm.

ModelSpec describe_phi(const ModelConfig& config) {
  ModelSpec spec =
      describe_with_layer_norm(config, {}, "layer_norm_eps", "gelu_new", {.partial = 0.5});
  spec.parallel_residual = true;
  BlockNames block = with_plain_mlp("mlp.fc1", "mlp.fc2");
  block.mlp.norm = {};
  block.attention.o = "self_attn.dense";
  name_llama_tensors(spec, config, kAllBiases, /*tied_by_default=*/false, block);
  if (config.flag_or({"qk_layernorm"}, false)) {
    add_qk_norms(spec, config, QkNorm::kSharedAcrossHeads, "layernorm", /*bias=*/true);
  }
  spec.final_norm = norm_at(prefix_of(config) + "final_layernorm", true);
  spec.lm_head_bias = "lm_head.bias";
  return spec;
}

ModelSpec describe_stablelm(const ModelConfig& config) {
  ModelSpec spec = describe_with_layer_norm(config, {.kv_heads = 32}, "layer_norm_eps", "silu",
                                            {.partial = 0.25});
  spec.parallel_residual = config.flag_or({"use_parallel_residual"}, false);
  name_llama_tensors(spec, config, {.qkv = config.flag_or({"use_qkv_bias"}, false), .norm = true},
                     /*tied_by_default=*/false,
                     spec.parallel_residual ? without_mlp_norm() : kLlamaBlock);
  if (config.flag_or({"qk_layernorm"}, false)) {
    spec.qk_norm = QkNorm::kPerHead;
    for (std::size_t i = 0; i < spec.layers.size(); ++i) {
      const std::string name = llama_layer_name(config, i) + ".self_attn.";
      AttentionLayout& attention = spec.layers[i].attention;
      attention.q_norms = norms_of_heads(name + "q_layernorm", spec.query_heads);
      attention.k_norms = norms_of_heads(name + "k_layernorm", spec.kv_heads[i]);
    }
  }
  return spec;
}

ModelSpec describe_starcoder2(const ModelConfig& config) {
  ModelSpec spec =
      describe_with_layer_norm(config, {.kv_heads = 2}, "norm_epsilon", "gelu_pytorch_tanh", {});
  const bool bias = config.flag_or({"use_bias"}, true);
  spec.sliding_window = config.optional_count({"sliding_window"});
  name_llama_tensors(spec, config, {bias, bias, bias, true}, /*tied_by_default=*/true,
                     with_plain_mlp("mlp.c_fc", "mlp.c_proj"));
  return spec;
}

ModelSpec describe_nemotron(const ModelConfig& config) {
  ModelSpec spec = describe_with_layer_norm(config, {}, "norm_eps", "relu2", {.partial = 0.5});
  spec.norm_weight_offset = 1.0;
  BlockBiases biases = llama_biases(config);
  biases.norm = true;
  name_llama_tensors(spec, config, biases, /*tied_by_default=*/false,
                     with_plain_mlp("mlp.up_proj", "mlp.down_proj"));
  return spec;
}

// Command-R: a parallel block with one norm, and interleaved RoPE. Command-R7B and Command-A
// (cohere2) have a window in three of four layers, and RoPE only there.

ModelSpec describe_cohere(const ModelConfig& config) {
  if (config.flag_or({"use_qk_norm"}, false)) {
    throw_bad_input(
        "{}: use_qk_norm: each key head has a norm of its own, so heads cannot be shared",
        config.where());
  }
  return describe_command_r(config, 500000.0);
}

ModelSpec describe_cohere2(const ModelConfig& config) {
  ModelSpec spec = describe_command_r(config, 10000.0);
  read_layer_windows(spec, config, config.optional_count({"sliding_window_pattern"}).value_or(4));
  for (LayerTensors& layer : spec.layers) {
    layer.without_rope = !spec.window_of(layer);
  }
  return spec;
}

// Qwen (the first): Llama's block in GPT-2's names, with q‖k‖v in one tensor with a bias.
//
// Beyond seq_length tokens its code changes the base of RoPE (use_dynamic_ntk) and multiplies
// queries by a logarithm of their position (use_logn_attn). Both are not computed here; up to
// seq_length tokens they have no effect.

ModelSpec describe_qwen(const ModelConfig& config) {
  ModelSpec spec;
  read_qwen_sizes(spec, config);
  read_qwen_length(spec, config);
  read_rope(spec, config, {.keys = {"rotary_emb_base", "rotary_pct"}});
  spec.norm = NormKind::kRmsNorm;
  spec.norm_epsilon = config.number_or({"layer_norm_epsilon"}, 1e-6);
  spec.activation = Activation::kSilu;
  const bool bias = !config.flag_or({"no_bias"}, true);
  name_stack(spec, config, {"transformer.", "wte", "h.", "ln_f"}, kQwenBlock,
             {.qkv = true, .o = bias, .mlp = bias});
  name_output(spec, config, "lm_head.weight", /*tied=*/false);
  return spec;
}

// Phi-3 and Phi-4: Llama's block with fused projections, q‖k‖v and gate‖up.

ModelSpec describe_phi3(const ModelConfig& config) {
  ModelSpec spec =
      describe_llama_like(config, {}, /*default_epsilon=*/1e-5, {.original_positions = 4096.0});
  spec.sliding_window = config.optional_count({"sliding_window"});
  BlockNames block = kLlamaBlock;
  block.packing = Packing::kQueryKeyValue;
  block.attention.qkv = "self_attn.qkv_proj";
  block.mlp.gate = block.mlp.up = "mlp.gate_up_proj";
  name_llama_tensors(spec, config, {}, /*tied_by_default=*/false, block);
  return spec;
}

}  // namespace regroup
