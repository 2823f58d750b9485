#include "formats/base/error.h"
#include "formats/base/printable.h"
#include "formats/families/families.h"
#include "formats/spec/config_reader.h"

namespace regroup {

void read_encoder_sizes(ModelSpec& spec, const ModelConfig& config) {
  read_stack_sizes(spec, config);
  spec.max_positions = config.count({"max_position_embeddings"});
  spec.intermediate_size = config.count({"intermediate_size"});
  spec.causal = false;
  spec.norm = NormKind::kLayerNorm;
  spec.mask_token = config.optional_token("mask_token_id", spec.vocab_size);
}

void name_masked_head(ModelSpec& spec, const ModelConfig& config, const MaskedHeadNames& names) {
  spec.head_transform = linear_at(names.transform, true);
  name_output(spec, config, names.decoder + ".weight", /*tied=*/true);
  name_output_bias(spec, config, names.decoder + ".bias", names.bias);
}

namespace {

void refuse_decoder(const ConfigReader& config) {
  for (const std::string_view key : {"is_decoder", "add_cross_attention"}) {
    if (config.flag_or({key}, false)) {
      throw_bad_input("{}: {} is true; only encoders of this family are supported", config.where(),
                      key);
    }
  }
}

// MosaicBERT has one tensor of queries, keys and values.
AttentionLayout bert_attention(const ModelConfig& config, const std::string& name) {
  constexpr BlockNames kFused{Packing::kQueryKeyValue, {{}, "self.Wqkv", "output.dense"}, {}};
  AttentionLayout attention = attention_at(name, kFused, kAllBiases);
  if (!config.stores(attention.q.weight)) {
    attention.packing = Packing::kSeparate;
    attention.q = linear_at(name + "self.query", true);
    attention.k = linear_at(name + "self.key", true);
    attention.v = linear_at(name + "self.value", true);
  }
  return attention;
}

LayerTensors layer_at(const ModelConfig& config, const std::string& name) {
  LayerTensors layer;
  layer.attention = bert_attention(config, name + ".attention.");
  layer.attention_norm = norm_at(name + ".attention.output.LayerNorm", true);
  const LinearTensors gate_up = linear_at(name + ".mlp.gated_layers", false);
  if (config.stores(gate_up.weight)) {
    layer.gate = layer.up = gate_up;
    layer.down = linear_at(name + ".mlp.wo", true);
    layer.mlp_norm = norm_at(name + ".mlp.layernorm", true);
  } else {
    layer.up = linear_at(name + ".intermediate.dense", true);
    layer.down = linear_at(name + ".output.dense", true);
    layer.mlp_norm = norm_at(name + ".output.LayerNorm", true);
  }
  return layer;
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

// Jina's config names the MLP, MosaicBERT's does not: a gated one has GELU there. The head keeps
// hidden_act.
void read_mlp(ModelSpec& spec, const ConfigReader& config) {
  const bool gated = spec.layers.front().gate.present();
  const std::string kind = config.text_or({"feed_forward_type"}, gated ? "geglu" : "original");
  if (kind == "original" ? gated : !gated || (kind != "geglu" && kind != "reglu")) {
    throw_bad_input("{}: feed_forward_type is {}, which the tensors of layer 0 do not fit",
                    config.where(), printable(kind));
  }
  if (gated) {
    spec.head_activation = spec.activation;
    spec.activation = kind == "reglu" ? Activation::kRelu : Activation::kGeluErf;
  }
}

// MosaicBERT's code pads the vocabulary and has ALiBi, whatever position_embedding_type says.
void read_mosaic(ModelSpec& spec, const ConfigReader& config) {
  constexpr std::int64_t kMultiple = 8;
  if (config.find("alibi_starting_size") == nullptr) {
    throw_bad_input(
        "{}: the checkpoint has Wqkv like MosaicBERT, but there is no alibi_starting_size; other "
        "models with these tensors are not supported",
        config.where());
  }
  spec.vocab_size = (spec.vocab_size + kMultiple - 1) / kMultiple * kMultiple;
  spec.positions = PositionKind::kAlibi;
  spec.position_embedding.clear();
}

// jina-bert-v2-qk-post-norm has other MLPs and norms of queries and keys.
void refuse_qk_norms(const ModelConfig& config, const std::string& start) {
  if (config.stores(start + "encoder.layer.0.attention.self.layer_norm_k.weight")) {
    throw_bad_input("{}: norms of queries and keys (layer_norm_k) in this family are not supported",
                    config.where());
  }
}

// Describes BERT and its relatives except for the head. `prefix` is that of models saved with their
// head.
ModelSpec describe_common(const ModelConfig& config, std::string_view prefix) {
  refuse_decoder(config);
  ModelSpec spec;
  read_encoder_sizes(spec, config);
  spec.token_types = config.optional_count({"type_vocab_size"}).value_or(2);
  spec.norm_epsilon = config.number_or({"layer_norm_eps"}, 1e-12);
  spec.norm_placement = NormPlacement::kAfterResidual;
  spec.activation = config.activation_or({"hidden_act"}, "gelu");
  const std::string start = find_prefix(config, {prefix, ""}, "embeddings.word_embeddings.weight");
  const std::string embeddings = start + "embeddings.";
  refuse_qk_norms(config, start);
  spec.token_embedding = embeddings + "word_embeddings.weight";
  read_positions(spec, config, embeddings);
  spec.token_type_embedding = embeddings + "token_type_embeddings.weight";
  spec.embedding_norm = norm_at(embeddings + "LayerNorm", true);
  for (std::size_t i = 0; i < spec.layers.size(); ++i) {
    spec.layers[i] = layer_at(config, start + "encoder.layer." + std::to_string(i));
  }
  read_mlp(spec, config);
  return spec;
}

// MPNet: transformers has no other number of buckets, whatever the config says. Padding has the row
// before the first position.
constexpr std::int64_t kBuckets = 32;
constexpr std::int64_t kFirstRow = 2;

constexpr BlockNames kMpnetBlock{Packing::kSeparate,
                                 {"attention.LayerNorm", "attention.attn.*", "attention.attn.o"},
                                 {"output.LayerNorm", {}, "intermediate.dense", "output.dense"}};

void read_mpnet_positions(ModelSpec& spec, const ConfigReader& config, const std::string& prefix) {
  spec.positions = PositionKind::kRelativeBias;
  spec.relative_bias.buckets =
      config.optional_count({"relative_attention_num_buckets"}).value_or(kBuckets);
  if (spec.relative_bias.buckets != kBuckets) {
    spec.not_computable = "relative_attention_num_buckets other than 32";
  }
  spec.layers.front().relative_bias = prefix + "encoder.relative_attention_bias.weight";
  spec.position_embedding = prefix + "embeddings.position_embeddings.weight";
  skip_first_positions(spec, config, kFirstRow);
}

}  // namespace

// BERT (with Jina's and MosaicML's), RoBERTa (with XLM-RoBERTa and CamemBERT) and ELECTRA:
// encoder-only models with a norm after each residual and a head that predicts masked tokens.

ModelSpec describe_bert(const ModelConfig& config) {
  ModelSpec spec = describe_common(config, "bert.");
  if (spec.layers.front().attention.packing == Packing::kQueryKeyValue) {
    read_mosaic(spec, config);
  }
  name_masked_head(
      spec, config,
      {"cls.predictions.transform.dense", "cls.predictions.bias", "cls.predictions.decoder"});
  spec.head_norm = norm_at("cls.predictions.transform.LayerNorm", true);
  return spec;
}

ModelSpec describe_electra(const ModelConfig& config) {
  ModelSpec spec = describe_common(config, "electra.");
  const std::int64_t width = config.optional_count({"embedding_size"}).value_or(128);
  if (width != spec.hidden_size) {
    spec.embedding_size = width;
    spec.projected_last = true;
    spec.project_in = linear_at(
        find_prefix(config, {"electra.", ""}, "embeddings_project.weight") + "embeddings_project",
        true);
  }
  spec.head_activation = Activation::kGeluErf;  // regardless of hidden_act
  name_masked_head(spec, config,
                   {"generator_predictions.dense", "generator_lm_head.bias", "generator_lm_head"});
  spec.head_norm = norm_at("generator_predictions.LayerNorm", true);
  return spec;
}

ModelSpec describe_roberta(const ModelConfig& config) {
  ModelSpec spec = describe_common(config, "roberta.");
  // Text without padding never uses the rows up to the padding token's id.
  skip_first_positions(spec, config,
                       config.optional_token("pad_token_id", spec.vocab_size).value_or(1) + 1);
  spec.head_activation = Activation::kGeluErf;  // regardless of hidden_act
  name_masked_head(spec, config, {"lm_head.dense", "lm_head.bias", "lm_head.decoder"});
  spec.head_norm = norm_at("lm_head.layer_norm", true);
  return spec;
}

// MPNet: BERT's block with a table of positions and a relative bias that all layers share.

ModelSpec describe_mpnet(const ModelConfig& config) {
  ModelSpec spec;
  read_encoder_sizes(spec, config);
  spec.norm_epsilon = config.number_or({"layer_norm_eps"}, 1e-12);
  spec.norm_placement = NormPlacement::kAfterResidual;
  spec.activation = config.activation_or({"hidden_act"}, "gelu");
  const std::string prefix =
      name_stack(spec, config, {"mpnet.", "embeddings.word_embeddings", "encoder.layer."},
                 kMpnetBlock, kAllBiases);
  spec.embedding_norm = norm_at(prefix + "embeddings.LayerNorm", true);
  read_mpnet_positions(spec, config, prefix);
  name_masked_head(spec, config, {"lm_head.dense", "lm_head.bias", "lm_head.decoder"});
  spec.head_activation = Activation::kGeluErf;  // regardless of hidden_act
  spec.head_norm = norm_at("lm_head.layer_norm", true);
  return spec;
}

// DistilBERT: BERT's block under names of its own, without token types.

constexpr BlockNames kDistilBertBlock{Packing::kSeparate,
                                      {"sa_layer_norm", "attention.*_lin", "attention.out_lin"},
                                      {"output_layer_norm", {}, "ffn.lin1", "ffn.lin2"}};

ModelSpec describe_distilbert(const ModelConfig& config) {
  ModelSpec spec;
  read_stack_sizes(spec, config, {"dim"}, {"n_heads"}, {"n_layers"});
  spec.max_positions = config.count({"max_position_embeddings"});
  spec.intermediate_size = config.count({"hidden_dim"});
  spec.mask_token = config.optional_token("mask_token_id", spec.vocab_size);
  spec.causal = false;
  spec.positions = PositionKind::kLearned;
  spec.norm = NormKind::kLayerNorm;
  spec.norm_epsilon = 1e-12;
  spec.norm_placement = NormPlacement::kAfterResidual;
  spec.activation = config.activation_or({"activation"}, "gelu");
  const std::string start =
      name_stack(spec, config, {"distilbert.", "embeddings.word_embeddings", "transformer.layer."},
                 kDistilBertBlock, kAllBiases);
  // Sinusoids, if the config has them, are stored as well.
  spec.position_embedding = start + "embeddings.position_embeddings.weight";
  spec.embedding_norm = norm_at(start + "embeddings.LayerNorm", true);
  spec.head_transform = linear_at("vocab_transform", true);
  spec.head_norm = norm_at("vocab_layer_norm", true);
  spec.lm_head_bias = "vocab_projector.bias";
  name_output(spec, config, "vocab_projector.weight", /*tied=*/true);
  return spec;
}

}  // namespace regroup
