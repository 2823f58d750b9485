// BERT, RoBERTa (with XLM-RoBERTa and CamemBERT) and ELECTRA: encoder-only models with a norm after
// each residual and a head that predicts masked tokens.
#include "formats/base/error.h"
#include "formats/base/printable.h"
#include "formats/config/decoder_sizes.h"
#include "formats/families/families.h"

namespace regroup {
namespace {

void refuse_decoder(const ConfigReader& config) {
  for (const std::string_view key : {"is_decoder", "add_cross_attention"}) {
    if (config.flag_or({key}, false)) {
      throw_bad_input("{}: {} is true; only encoders of this family are supported", config.where(),
                      key);
    }
  }
}

// In checkpoints converted from TensorFlow, weight and bias of a LayerNorm are gamma and beta.
NormTensors layer_norm_at(const Checkpoint& checkpoint, const std::string& name) {
  const bool old = checkpoint.find(name + ".gamma") != nullptr;
  return old ? NormTensors{name + ".gamma", name + ".beta"} : norm_at(name, true);
}

LayerTensors layer_at(const Checkpoint& checkpoint, const std::string& name) {
  LayerTensors layer;
  const std::string attention = name + ".attention.";
  layer.attention = {Packing::kSeparate,
                     linear_at(attention + "self.query", true),
                     linear_at(attention + "self.key", true),
                     linear_at(attention + "self.value", true),
                     linear_at(attention + "output.dense", true),
                     {},
                     {}};
  layer.attention_norm = layer_norm_at(checkpoint, attention + "output.LayerNorm");
  layer.up = linear_at(name + ".intermediate.dense", true);
  layer.down = linear_at(name + ".output.dense", true);
  layer.mlp_norm = layer_norm_at(checkpoint, name + ".output.LayerNorm");
  return layer;
}

void read_bert_sizes(ModelSpec& spec, const ConfigReader& config, const Checkpoint& checkpoint) {
  spec.hidden_size = config.count({"hidden_size"});
  set_heads(spec, config, {"num_attention_heads"}, std::nullopt);
  read_stack_sizes(spec, config, {"num_hidden_layers"}, checkpoint);
  spec.intermediate_size = config.count({"intermediate_size"});
  spec.token_types = config.optional_count({"type_vocab_size"}).value_or(2);
}

// Positions are rows of a table or, with "alibi" (Jina's BERT), ALiBi in both directions.
void read_positions(ModelSpec& spec, const ConfigReader& config, const std::string& embeddings) {
  const std::string kind = config.text_or({"position_embedding_type"}, "absolute");
  if (kind == "alibi") {
    spec.positions = PositionKind::kAlibi;
  } else if (kind == "absolute") {
    spec.positions = PositionKind::kLearned;
    spec.position_embedding = embeddings + "position_embeddings.weight";
  } else {
    throw_bad_input("{}: position_embedding_type is {}; known: absolute, alibi", config.where(),
                    printable(kind));
  }
}

// The reason why the block cannot be computed. Its attention can still be converted.
std::string unsupported_block(const ConfigReader& config) {
  const std::string kind = config.text_or({"feed_forward_type"}, "original");
  return kind == "original" ? "" : "feed_forward_type " + printable(kind);
}

// Describes everything except the head. `prefix` is that of models saved with their head.
ModelSpec describe_common(const ConfigReader& config, const Checkpoint& checkpoint,
                          std::string_view prefix) {
  refuse_decoder(config);
  ModelSpec spec;
  read_bert_sizes(spec, config, checkpoint);
  spec.causal = false;
  spec.norm = NormKind::kLayerNorm;
  spec.norm_epsilon = config.number_or({"layer_norm_eps"}, 1e-12);
  spec.norm_placement = NormPlacement::kAfterResidual;
  spec.activation = activation_from_name(config.text_or({"hidden_act"}, "gelu"), config.where());
  spec.not_computable = unsupported_block(config);
  spec.mask_token = config.optional_token("mask_token_id", spec.vocab_size);
  const std::string start =
      find_prefix(checkpoint, {prefix, ""}, "embeddings.word_embeddings.weight");
  const std::string embeddings = start + "embeddings.";
  spec.token_embedding = embeddings + "word_embeddings.weight";
  read_positions(spec, config, embeddings);
  spec.token_type_embedding = embeddings + "token_type_embeddings.weight";
  spec.embedding_norm = layer_norm_at(checkpoint, embeddings + "LayerNorm");
  for (std::size_t i = 0; i < spec.layers.size(); ++i) {
    spec.layers[i] = layer_at(checkpoint, start + "encoder.layer." + std::to_string(i));
  }
  return spec;
}

struct HeadNames {
  std::string transform, norm, bias, decoder;
};

void name_head(ModelSpec& spec, const ConfigReader& config, const Checkpoint& checkpoint,
               const HeadNames& names) {
  spec.head_transform = linear_at(names.transform, true);
  spec.head_norm = layer_norm_at(checkpoint, names.norm);
  spec.lm_head_bias = names.bias;
  spec.lm_head = config.flag_or({"tie_word_embeddings"}, true) ? "" : names.decoder;
}

}  // namespace

ModelSpec describe_bert(const ConfigReader& config, const Checkpoint& checkpoint) {
  ModelSpec spec = describe_common(config, checkpoint, "bert.");
  name_head(spec, config, checkpoint,
            {"cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm",
             "cls.predictions.bias", "cls.predictions.decoder.weight"});
  return spec;
}

ModelSpec describe_electra(const ConfigReader& config, const Checkpoint& checkpoint) {
  ModelSpec spec = describe_common(config, checkpoint, "electra.");
  // Positions, types and norm would come before the projection.
  const std::int64_t width = config.optional_count({"embedding_size"}).value_or(128);
  if (width != spec.hidden_size) {
    throw_bad_input(
        "{}: embedding_size is {}, the hidden size {}: projected embeddings of this "
        "family are not supported",
        config.where(), width, spec.hidden_size);
  }
  spec.head_activation = Activation::kGeluErf;  // regardless of hidden_act
  name_head(spec, config, checkpoint,
            {"generator_predictions.dense", "generator_predictions.LayerNorm",
             "generator_lm_head.bias", "generator_lm_head.weight"});
  return spec;
}

ModelSpec describe_roberta(const ConfigReader& config, const Checkpoint& checkpoint) {
  ModelSpec spec = describe_common(config, checkpoint, "roberta.");
  // Text without padding never uses the rows up to the padding token's id.
  spec.position_offset = config.optional_token("pad_token_id", spec.vocab_size).value_or(1) + 1;
  spec.max_positions = *spec.max_positions - spec.position_offset;
  if (*spec.max_positions < 1) {
    throw_bad_input("{}: max_position_embeddings leaves no position after the first {} rows",
                    config.where(), spec.position_offset);
  }
  spec.head_activation = Activation::kGeluErf;  // regardless of hidden_act
  name_head(spec, config, checkpoint,
            {"lm_head.dense", "lm_head.layer_norm", "lm_head.bias", "lm_head.decoder.weight"});
  return spec;
}

}  // namespace regroup
