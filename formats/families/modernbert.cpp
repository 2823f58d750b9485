// Encoders with rotary positions.
#include <fmt/format.h>

#include "formats/base/printable.h"
#include "formats/families/families.h"
#include "formats/spec/config_reader.h"

namespace regroup {

namespace {

constexpr BlockNames kModernBertBlock{Packing::kQueryKeyValue,
                                      {"attn_norm", "attn.Wqkv", "attn.Wo"},
                                      {"mlp_norm", "mlp.Wi", "mlp.Wi", "mlp.Wo"}};

// local_attention counts the positions on both sides of a query, without itself.
void read_local_attention(ModelSpec& spec, const ConfigReader& config) {
  const auto step =
      static_cast<std::size_t>(config.optional_count({"global_attn_every_n_layers"}).value_or(3));
  const std::int64_t width = config.optional_count({"local_attention"}).value_or(128);
  const auto slides = [&](std::size_t layer) { return layer % step != 0; };
  set_windows(spec, sliding_layers(config, spec.layers.size(), slides), width / 2 + 1);
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

// Classifiers have the masked head's transform, too, but no decoder.
bool is_classifier(const ModelConfig& config) {
  return config.stores("classifier.weight") && !config.stores("decoder.weight") &&
         !config.stores("decoder.bias");
}

void name_modernbert_head(ModelSpec& spec, const ModelConfig& config, bool norm_bias) {
  if (is_classifier(config)) {
    spec.lm_head = "decoder.weight";
    return;
  }
  spec.head_transform = linear_at("head.dense", config.flag_or({"classifier_bias"}, false));
  spec.head_activation = config.activation_or({"classifier_activation"}, "gelu");
  spec.head_norm = norm_at("head.norm", norm_bias);
  name_output(spec, config, "decoder.weight", /*tied=*/true);
  spec.lm_head_bias = config.flag_or({"decoder_bias"}, true) ? "decoder.bias" : "";
}

// Settings of NomicBERT's own code for other blocks.
std::string unsupported_nomic_setting(const ConfigReader& config) {
  for (const char* key : {"prenorm", "parallel_block", "use_rms_norm", "causal",
                          "scale_attn_by_inverse_layer_idx", "rotary_emb_interleaved"}) {
    if (config.flag_or({key}, false)) {
      return fmt::format("{} = true", key);
    }
  }
  for (const char* key : {"rotary_emb_scale_base", "rotary_scaling_factor", "num_experts"}) {
    if (config.find(key) != nullptr) {
      return key;
    }
  }
  if (config.number_or({"rotary_emb_fraction"}, 1.0) != 1.0) {
    return "rotary_emb_fraction";
  }
  const std::string activation = config.text_or({"activation_function"}, "swiglu");
  return activation == "swiglu" ? "" : "activation_function " + printable(activation);
}

void read_nomic_sizes(ModelSpec& spec, const ModelConfig& config) {
  read_stack_sizes(spec, config, {"hidden_size", "n_embd"}, {"num_attention_heads", "n_head"},
                   {"num_hidden_layers", "n_layer"}, config.optional_count({"head_dim"}));
  spec.intermediate_size = config.count({"intermediate_size", "n_inner"});
  spec.max_positions = config.count({"max_position_embeddings", "n_positions"});
  spec.token_types = config.optional_count({"type_vocab_size"}).value_or(2);
  spec.mask_token = config.optional_token("mask_token_id", spec.vocab_size);
}

constexpr BlockNames kNomicBlock{Packing::kQueryKeyValue,
                                 {"norm1", "attn.Wqkv", "attn.out_proj"},
                                 {"norm2", "mlp.fc12", "mlp.fc11", "mlp.fc2"}};

void name_nomic_blocks(ModelSpec& spec, const ConfigReader& config, const std::string& prefix) {
  const bool attention = config.flag_or({"qkv_proj_bias"}, false);
  const bool in = config.flag_or({"mlp_fc1_bias"}, false);
  const bool out = config.flag_or({"mlp_fc2_bias"}, false);
  name_blocks(spec.layers, prefix + "encoder.layers.", kNomicBlock,
              {attention, attention, in, true});
  for (std::size_t i = 0; i < spec.layers.size(); ++i) {
    spec.layers[i].down = linear_at(fmt::format("{}encoder.layers.{}.mlp.fc2", prefix, i), out);
  }
}

}  // namespace

// ModernBERT: an encoder with RoPE, windows in most layers, and a norm before each sublayer.

ModelSpec describe_modernbert(const ModelConfig& config) {
  ModelSpec spec;
  read_encoder_sizes(spec, config);
  spec.norm_epsilon = config.number_or({"norm_eps"}, 1e-5);
  spec.activation = config.activation_or({"hidden_activation"}, "gelu");
  read_local_attention(spec, config);
  read_modernbert_rope(spec, config);

  const bool attention_bias = config.flag_or({"attention_bias"}, false);
  const BlockBiases biases{attention_bias, attention_bias, config.flag_or({"mlp_bias"}, false),
                           config.flag_or({"norm_bias"}, false)};
  const std::string prefix =
      name_stack(spec, config, {"model.", "embeddings.tok_embeddings", "layers.", "final_norm"},
                 kModernBertBlock, biases);
  spec.embedding_norm = norm_at(prefix + "embeddings.norm", biases.norm);
  spec.layers.front().attention_norm = {};  // the embedding's norm is before the first layer
  name_modernbert_head(spec, config, biases.norm);
  return spec;
}

// NomicBERT: BERT's block with RoPE, a gated MLP and a fused projection, under GPT-2's keys in the
// configs of its own code and BERT's in those of transformers 5.

ModelSpec describe_nomic_bert(const ModelConfig& config) {
  ModelSpec spec;
  read_nomic_sizes(spec, config);
  spec.causal = false;
  read_rope(spec, config, {.theta = config.number_or({"rotary_emb_base"}, 1000.0)});
  read_layer_norm(spec, config, {"layer_norm_eps", "layer_norm_epsilon"}, 1e-12);
  spec.norm_placement = NormPlacement::kAfterResidual;
  spec.activation = config.activation_or({"hidden_act"}, "silu");
  if (const std::string setting = unsupported_nomic_setting(config); !setting.empty()) {
    spec.not_computable = setting;
  }
  const std::string prefix = find_prefix(config, {"bert.", "nomic_bert.", ""}, "emb_ln.weight");
  spec.token_embedding = prefix + "embeddings.word_embeddings.weight";
  spec.token_type_embedding = prefix + "embeddings.token_type_embeddings.weight";
  spec.embedding_norm = norm_at(prefix + "emb_ln", true);
  name_nomic_blocks(spec, config, prefix);
  name_masked_head(
      spec, config,
      {"cls.predictions.transform.dense", "cls.predictions.bias", "cls.predictions.decoder"});
  spec.head_norm = norm_at("cls.predictions.transform.layer_norm", true);
  return spec;
}

}  // namespace regroup
