// ModernBERT: an encoder with RoPE, windows in most layers, and a norm before each sublayer.
#include "formats/config/decoder_sizes.h"
#include "formats/config/layer_windows.h"
#include "formats/config/rope_config.h"
#include "formats/families/encoders/encoder_sizes.h"
#include "formats/families/families.h"

namespace regroup {
namespace {

struct ModernBertBiases {
  bool attention, mlp, norm;
};

LayerTensors modernbert_layer(const std::string& name, bool first, const ModernBertBiases& biases) {
  const LinearTensors fused = linear_at(name + ".attn.Wqkv", biases.attention);
  LayerTensors layer;
  if (!first) {  // the embedding's norm is before the first layer
    layer.attention_norm = norm_at(name + ".attn_norm", biases.norm);
  }
  layer.attention = {Packing::kQueryKeyValue,
                     fused,
                     fused,
                     fused,
                     linear_at(name + ".attn.Wo", biases.attention),
                     {},
                     {}};
  layer.mlp_norm = norm_at(name + ".mlp_norm", biases.norm);
  layer.gate = layer.up = linear_at(name + ".mlp.Wi", biases.mlp);
  layer.down = linear_at(name + ".mlp.Wo", biases.mlp);
  return layer;
}

// local_attention counts the positions on both sides of a query, without itself.
void read_local_attention(ModelSpec& spec, const ConfigReader& config) {
  const auto step =
      static_cast<std::size_t>(config.optional_count({"global_attn_every_n_layers"}).value_or(3));
  std::vector<bool> slides(spec.layers.size());
  for (std::size_t i = 0; i < slides.size(); ++i) {
    slides[i] = i % step != 0;
  }
  const std::int64_t width = config.optional_count({"local_attention"}).value_or(128);
  set_windows(spec, listed_windows(config, slides.size()).value_or(slides), width / 2 + 1);
}

void read_modernbert_rope(ModelSpec& spec, const ConfigReader& config) {
  read_rope_of_windows(spec, config, {.theta = config.number_or({"global_rope_theta"}, 160000.0)},
                       {.theta = config.number_or({"local_rope_theta"}, 10000.0)});
  if (!config.object("rope_scaling").empty()) {
    spec.not_computable = "rope_scaling";
  } else if (config.mentions("local_rope_theta") && config.find("local_rope_theta") == nullptr) {
    spec.not_computable = "local_rope_theta null";
  }
}

void name_modernbert_head(ModelSpec& spec, const ConfigReader& config, bool norm_bias) {
  spec.head_transform = linear_at("head.dense", config.flag_or({"classifier_bias"}, false));
  spec.head_activation =
      activation_from_name(config.text_or({"classifier_activation"}, "gelu"), config.where());
  spec.head_norm = norm_at("head.norm", norm_bias);
  name_output(spec, config, "decoder.weight", /*tied=*/true);
  spec.lm_head_bias = config.flag_or({"decoder_bias"}, true) ? "decoder.bias" : "";
}

}  // namespace

ModelSpec describe_modernbert(const ConfigReader& config, const Checkpoint& checkpoint) {
  ModelSpec spec;
  read_encoder_sizes(spec, config, checkpoint);
  spec.norm_epsilon = config.number_or({"norm_eps"}, 1e-5);
  spec.activation =
      activation_from_name(config.text_or({"hidden_activation"}, "gelu"), config.where());
  read_local_attention(spec, config);
  read_modernbert_rope(spec, config);

  const ModernBertBiases biases{config.flag_or({"attention_bias"}, false),
                                config.flag_or({"mlp_bias"}, false),
                                config.flag_or({"norm_bias"}, false)};
  const std::string prefix =
      find_prefix(checkpoint, {"model.", ""}, "embeddings.tok_embeddings.weight");
  spec.token_embedding = prefix + "embeddings.tok_embeddings.weight";
  spec.embedding_norm = norm_at(prefix + "embeddings.norm", biases.norm);
  for (std::size_t i = 0; i < spec.layers.size(); ++i) {
    const bool without_window = spec.layers[i].without_window;
    spec.layers[i] = modernbert_layer(prefix + "layers." + std::to_string(i), i == 0, biases);
    spec.layers[i].without_window = without_window;
  }
  spec.final_norm = norm_at(prefix + "final_norm", biases.norm);
  name_modernbert_head(spec, config, biases.norm);
  return spec;
}

}  // namespace regroup
