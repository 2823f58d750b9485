// T5 and its relatives mT5 and UMT5: an encoder and a decoder with relative position biases.
// Attention scores are not divided by √d.
#include <cmath>

#include "formats/base/error.h"
#include "formats/base/printable.h"
#include "formats/families/families.h"
#include "formats/spec/config_reader.h"

namespace regroup {
namespace {

// From "relu", or "gated-gelu" with a gate. transformers also saves its interpretation under
// separate keys, which take precedence. Only in "gated-gelu", "gelu" means the tanh form.
struct FeedForward {
  Activation activation = Activation::kRelu;
  bool gated = false;
};

FeedForward read_feed_forward(const ConfigReader& config, const std::string& absent) {
  const std::string text = config.text_or({"feed_forward_proj"}, absent);
  constexpr std::string_view kGated = "gated-";
  const bool gated = text.starts_with(kGated);
  std::string name = gated ? text.substr(kGated.size()) : text;
  if (gated && name == "gelu") {
    name = "gelu_new";
  }
  return {config.activation_or({"dense_act_fn"}, name), config.flag_or({"is_gated_act"}, gated)};
}

void read_relative_bias(ModelSpec& spec, const ConfigReader& config) {
  spec.positions = PositionKind::kRelativeBias;
  RelativeBiasSpec& bias = spec.relative_bias;
  bias.buckets = config.optional_count({"relative_attention_num_buckets"}).value_or(bias.buckets);
  bias.max_distance =
      config.optional_count({"relative_attention_max_distance"}).value_or(bias.max_distance);
  // An encoder uses half of the buckets for each direction. Half of these hold a single distance
  // each.
  if (bias.buckets < 4 || bias.max_distance <= bias.buckets / 2) {
    throw_bad_input(
        "{}: {} buckets for distances up to {}: at least 4 are needed, and distances above half "
        "their number",
        config.where(), bias.buckets, bias.max_distance);
  }
}

void read_t5_sizes(ModelSpec& spec, const ModelConfig& config) {
  spec.hidden_size = config.count({"d_model"});
  set_heads(spec, config, {"num_heads"}, config.optional_count({"d_kv"}).value_or(64));
  read_layers(spec.encoder_layers, config, {"num_layers"});
  read_layers(spec.layers, config, {"num_decoder_layers", "num_layers"});
  spec.intermediate_size = config.count({"d_ff"});
  spec.vocab_size = config.count({"vocab_size"});
  spec.max_positions = config.optional_count({"n_positions"});
  read_kv_heads_of_roles(spec, config);
}

constexpr BlockNames kT5Attention{Packing::kSeparate, {{}, "*", "o"}, {}};

// A block is a list of sublayers, each with its own norm: attention, cross-attention in the
// decoder, MLP.
LayerTensors t5_layer(const std::string& name, bool decoder, bool gated, bool own_bias) {
  LayerTensors layer;
  const std::string self = name + ".layer.0";
  layer.attention_norm = norm_at(self + ".layer_norm", false);
  layer.attention = attention_at(self + ".SelfAttention.", kT5Attention, {});
  if (own_bias) {
    layer.relative_bias = self + ".SelfAttention.relative_attention_bias.weight";
  }
  if (decoder) {
    layer.cross_norm = norm_at(name + ".layer.1.layer_norm", false);
    layer.cross_attention = attention_at(name + ".layer.1.EncDecAttention.", kT5Attention, {});
  }
  const std::string last = name + (decoder ? ".layer.2" : ".layer.1");
  layer.mlp_norm = norm_at(last + ".layer_norm", false);
  const std::string mlp = last + ".DenseReluDense.";
  if (gated) {
    layer.gate = linear_at(mlp + "wi_0", false);
  }
  layer.up = linear_at(mlp + (gated ? "wi_1" : "wi"), false);
  layer.down = linear_at(mlp + "wo", false);
  return layer;
}

void name_t5_stack(std::vector<LayerTensors>& layers, const std::string& stack, bool gated,
                   bool bias_in_every_layer) {
  for (std::size_t i = 0; i < layers.size(); ++i) {
    layers[i] = t5_layer(stack + ".block." + std::to_string(i), stack == "decoder", gated,
                         bias_in_every_layer || i == 0);
  }
}

// The files of the first T5 hold a bias table for the first cross-attention, which does not use it.
void note_idle_bias(ModelSpec& spec, const ModelConfig& config) {
  const std::string name = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight";
  if (config.stores(name)) {
    spec.idle_position_tensors.push_back(name);
  }
}

// transformers ties the output projection, whatever the config says, unless it is stored and
// differs: no contradiction in a model that was not tied, as since v1.1.
void name_t5_output(ModelSpec& spec, const ModelConfig& config, bool tied_by_config) {
  const std::string name = "lm_head.weight";
  const bool to_be_made = config.checkpoint.files().empty();
  const bool stored = config.stores(name) && config.stores(spec.token_embedding);
  (!tied_by_config && (to_be_made || stored) ? spec.lm_head : spec.tied_head) = name;
}

ModelSpec describe_t5_stacks(const ModelConfig& config, const std::string& feed_forward,
                             bool bias_in_every_layer = false) {
  ModelSpec spec;
  read_t5_sizes(spec, config);
  read_relative_bias(spec, config);
  spec.attention_scale = 1.0;
  spec.norm = NormKind::kRmsNorm;
  spec.norm_epsilon = config.number_or({"layer_norm_epsilon"}, 1e-6);
  const FeedForward mlp = read_feed_forward(config, feed_forward);
  spec.activation = mlp.activation;
  const std::int64_t pad = config.optional_token("pad_token_id", spec.vocab_size).value_or(0);
  spec.decoder_start_token =
      config.optional_token("decoder_start_token_id", spec.vocab_size).value_or(pad);

  spec.token_embedding = "shared.weight";
  spec.tied_lookups = {"encoder.embed_tokens.weight", "decoder.embed_tokens.weight"};
  name_t5_stack(spec.encoder_layers, "encoder", mlp.gated, bias_in_every_layer);
  name_t5_stack(spec.layers, "decoder", mlp.gated, bias_in_every_layer);
  note_idle_bias(spec, config);
  spec.encoder_final_norm = norm_at("encoder.final_layer_norm", false);
  spec.final_norm = norm_at("decoder.final_layer_norm", false);
  return spec;
}

double inverse_root(std::int64_t width) { return 1.0 / std::sqrt(static_cast<double>(width)); }

}  // namespace

ModelSpec describe_t5(const ModelConfig& config) {
  ModelSpec spec = describe_t5_stacks(config, "relu");
  // Since v1.1, the output is untied and therefore not scaled. transformers 5 saves every model as
  // tied, and saves in a separate key whether the original was.
  const bool scaled =
      config.flag_or({"scale_decoder_outputs"}, config.flag_or({"tie_word_embeddings"}, true));
  const bool tied = scaled && config.flag_or({"tie_word_embeddings"}, true);
  spec.output_scale = scaled ? inverse_root(spec.hidden_size) : 1.0;
  name_t5_output(spec, config, tied);
  return spec;
}

ModelSpec describe_mt5(const ModelConfig& config) {
  ModelSpec spec = describe_t5_stacks(config, "gated-gelu");
  name_t5_output(spec, config, false);  // never scaled, regardless of the config
  return spec;
}

ModelSpec describe_umt5(const ModelConfig& config) {
  ModelSpec spec = describe_t5_stacks(config, "gated-gelu", /*bias_in_every_layer=*/true);
  const bool tied = config.flag_or({"tie_word_embeddings"}, true);
  spec.output_scale = tied ? inverse_root(spec.hidden_size) : 1.0;
  name_t5_output(spec, config, false);
  return spec;
}

}  // namespace regroup
