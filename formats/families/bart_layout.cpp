#include "formats/families/bart_layout.h"

#include <cmath>

#include <fmt/format.h>

#include "formats/base/error.h"
#include "formats/config/decoder_sizes.h"

namespace regroup {
namespace {

void read_bart_heads(ModelSpec& spec, const ConfigReader& config) {
  set_heads(spec, config, {"encoder_attention_heads", "num_attention_heads"}, std::nullopt);
  const std::int64_t decoder =
      config.optional_count({"decoder_attention_heads"}).value_or(spec.query_heads);
  if (decoder != spec.query_heads) {
    throw_bad_input(
        "{}: encoder_attention_heads is {}, decoder_attention_heads is {}: only equal numbers are "
        "supported",
        config.where(), spec.query_heads, decoder);
  }
}

void read_bart_sizes(ModelSpec& spec, const ConfigReader& config, const Checkpoint& checkpoint) {
  spec.hidden_size = config.count({"d_model", "hidden_size"});
  read_bart_heads(spec, config);
  const std::int64_t encoder =
      read_layer_count(config, {"encoder_layers", "num_hidden_layers"}, checkpoint);
  const std::int64_t decoder = read_layer_count(config, {"decoder_layers"}, checkpoint);
  spec.encoder_layers.resize(static_cast<std::size_t>(encoder));
  spec.layers.resize(static_cast<std::size_t>(decoder));
  spec.intermediate_size = config.count({"decoder_ffn_dim"});
  const std::int64_t encoder_width = config.count({"encoder_ffn_dim"});
  for (LayerTensors& layer : spec.encoder_layers) {
    layer.intermediate_size = encoder_width == spec.intermediate_size ? 0 : encoder_width;
  }
  spec.vocab_size = config.count({"vocab_size"});
  for (const AttentionRole role : spec.roles()) {
    spec.kv_heads_of(role) = config.kv_heads(spec.kv_heads_key_of(role).back(),
                                             static_cast<std::int64_t>(spec.stack(role).size()),
                                             spec.query_heads, spec.query_heads);
  }
}

void read_bart_start(ModelSpec& spec, const ConfigReader& config, std::int64_t absent) {
  spec.decoder_start_token = config.optional_token("decoder_start_token_id", spec.vocab_size);
  if (!spec.decoder_start_token && absent < spec.vocab_size) {
    spec.decoder_start_token = absent;
  }
}

AttentionLayout bart_attention(const std::string& name, bool key_bias) {
  return {Packing::kSeparate,
          linear_at(name + ".q_proj", true),
          linear_at(name + ".k_proj", key_bias),
          linear_at(name + ".v_proj", true),
          linear_at(name + ".out_proj", true),
          {},
          {}};
}

void name_bart_layer(LayerTensors& layer, const std::string& name, bool decoder, bool key_bias) {
  layer.attention_norm = norm_at(name + ".self_attn_layer_norm", true);
  layer.attention = bart_attention(name + ".self_attn", key_bias);
  if (decoder) {
    layer.cross_norm = norm_at(name + ".encoder_attn_layer_norm", true);
    layer.cross_attention = bart_attention(name + ".encoder_attn", key_bias);
  }
  layer.mlp_norm = norm_at(name + ".final_layer_norm", true);
  layer.up = linear_at(name + ".fc1", true);
  layer.down = linear_at(name + ".fc2", true);
}

void add_obstacle(ModelSpec& spec, const std::string& reason) {
  spec.not_computable += (spec.not_computable.empty() ? "" : ", ") + reason;
}

}  // namespace

void read_bart_config(ModelSpec& spec, const ConfigReader& config, const Checkpoint& checkpoint,
                      const BartDefaults& defaults) {
  read_bart_sizes(spec, config, checkpoint);
  read_bart_start(spec, config, defaults.start_token);
  spec.norm = NormKind::kLayerNorm;
  spec.norm_epsilon = 1e-5;
  spec.activation = activation_from_name(
      config.text_or({"activation_function"}, defaults.activation), config.where());
  if (config.flag_or({"scale_embedding"}, defaults.scaled)) {
    spec.embedding_scale = std::sqrt(static_cast<double>(spec.hidden_size));
  }
}

void name_bart_stacks(ModelSpec& spec, const BartNames& names) {
  const std::string encoder = names.prefix + "encoder.", decoder = names.prefix + "decoder.";
  for (std::size_t i = 0; i < spec.encoder_layers.size(); ++i) {
    name_bart_layer(spec.encoder_layers[i], fmt::format("{}layers.{}", encoder, i), false,
                    names.key_bias);
  }
  for (std::size_t i = 0; i < spec.layers.size(); ++i) {
    name_bart_layer(spec.layers[i], fmt::format("{}layers.{}", decoder, i), true, names.key_bias);
  }
  if (names.final_norms) {
    spec.encoder_final_norm = norm_at(encoder + "layer_norm", true);
    spec.final_norm = norm_at(decoder + "layer_norm", true);
  }
  if (names.embedding_norms) {
    spec.encoder_embedding_norm = norm_at(encoder + "layernorm_embedding", true);
    spec.embedding_norm = norm_at(decoder + "layernorm_embedding", true);
  }
}

std::string bart_prefix(const Checkpoint& checkpoint) {
  return find_prefix(checkpoint, {"model.", ""}, "decoder.layers.0.self_attn.k_proj.weight");
}

void name_shared_embedding(ModelSpec& spec, const ConfigReader& config, const std::string& prefix) {
  spec.token_embedding = prefix + "shared.weight";
  spec.tied_head = "lm_head.weight";
  spec.tied_lookups = {prefix + "encoder.embed_tokens.weight",
                       prefix + "decoder.embed_tokens.weight"};
  if (!config.flag_or({"tie_word_embeddings"}, true)) {
    add_obstacle(spec, "tie_word_embeddings = false");
    spec.loaders_compute = true;
  }
}

void name_logits_bias(ModelSpec& spec, const Checkpoint& checkpoint) {
  const std::string name = "final_logits_bias";
  if (checkpoint.find(name) != nullptr) {
    spec.lm_head_bias = name;
    spec.lm_head_bias_is_row = true;
    spec.constant_tensors.push_back(name);
  }
}

void check_old_keys(ModelSpec& spec, const ConfigReader& config, const OldBlockKeys& fixed) {
  const std::pair<const char*, bool> keys[] = {{"normalize_before", fixed.normalize_before},
                                               {"add_final_layer_norm", fixed.add_final_layer_norm},
                                               {"normalize_embedding", fixed.normalize_embedding}};
  for (const auto& [key, value] : keys) {
    if (config.flag_or({key}, value) != value) {
      add_obstacle(spec, fmt::format("{} = {}", key, !value));
      spec.loaders_compute = false;  // they ignore the key
    }
  }
}

}  // namespace regroup
