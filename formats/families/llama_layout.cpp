#include "formats/families/llama_layout.h"

#include <vector>

#include "formats/config/decoder_sizes.h"
#include "formats/config/layer_windows.h"

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

}  // namespace regroup
