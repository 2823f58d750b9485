// BART's block and the models that have it: encoder-decoders, and decoders alone.
#include <cmath>

#include <fmt/format.h>

#include "formats/base/error.h"
#include "formats/families/families.h"
#include "formats/spec/config_reader.h"

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

void read_bart_sizes(ModelSpec& spec, const ModelConfig& config) {
  spec.hidden_size = config.count({"d_model", "hidden_size"});
  read_bart_heads(spec, config);
  read_layers(spec.encoder_layers, config, {"encoder_layers", "num_hidden_layers"});
  read_layers(spec.layers, config, {"decoder_layers"});
  spec.intermediate_size = config.count({"decoder_ffn_dim"});
  const std::int64_t encoder_width = config.count({"encoder_ffn_dim"});
  for (LayerTensors& layer : spec.encoder_layers) {
    layer.intermediate_size = encoder_width == spec.intermediate_size ? 0 : encoder_width;
  }
  spec.vocab_size = config.count({"vocab_size"});
  read_kv_heads_of_roles(spec, config);
}

void read_bart_start(ModelSpec& spec, const ConfigReader& config, std::int64_t absent) {
  spec.decoder_start_token = config.optional_token("decoder_start_token_id", spec.vocab_size);
  if (!spec.decoder_start_token && absent < spec.vocab_size) {
    spec.decoder_start_token = absent;
  }
}

constexpr BlockNames kBartBlock{Packing::kSeparate,
                                {"self_attn_layer_norm", "self_attn.*_proj", "self_attn.out_proj"},
                                {"final_layer_norm", {}, "fc1", "fc2"}};

constexpr BlockNames kBartCross{
    Packing::kSeparate, {{}, "encoder_attn.*_proj", "encoder_attn.out_proj"}, {}};

void add_obstacle(ModelSpec& spec, const std::string& reason) {
  spec.not_computable += (spec.not_computable.empty() ? "" : ", ") + reason;
}

void read_embedding_scale(ModelSpec& spec, const ConfigReader& config, bool absent) {
  if (config.flag_or({"scale_embedding"}, absent)) {
    spec.embedding_scale = std::sqrt(static_cast<double>(spec.hidden_size));
  }
}

struct BartDefaults {
  std::string activation = "gelu";
  bool scaled = false;
  std::int64_t start_token = 2;
};

// Sizes, kv heads and layers (without names), and what all relatives share.
void read_bart_config(ModelSpec& spec, const ModelConfig& config, const BartDefaults& defaults) {
  read_bart_sizes(spec, config);
  read_bart_start(spec, config, defaults.start_token);
  spec.norm = NormKind::kLayerNorm;
  spec.norm_epsilon = 1e-5;
  spec.activation = config.activation_or({"activation_function"}, defaults.activation);
  read_embedding_scale(spec, config, defaults.scaled);
}

// What stacks differ in.
struct BartNames {
  std::string prefix;            // of encoder and decoder: "model." or ""
  bool final_norms = false;      // "layer_norm" at the end of both
  bool embedding_norms = false;  // "layernorm_embedding"
};

void name_bart_stacks(ModelSpec& spec, const BartNames& names) {
  const std::string encoder = names.prefix + "encoder.", decoder = names.prefix + "decoder.";
  name_blocks(spec.encoder_layers, encoder + "layers.", kBartBlock, kAllBiases);
  name_blocks(spec.layers, decoder + "layers.", kBartBlock, kAllBiases);
  for (std::size_t i = 0; i < spec.layers.size(); ++i) {
    const std::string block = fmt::format("{}layers.{}.", decoder, i);
    spec.layers[i].cross_norm = norm_at(block + "encoder_attn_layer_norm", true);
    spec.layers[i].cross_attention = attention_at(block, kBartCross, kAllBiases);
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

// "model.", or "" for models saved without their head.
std::string bart_prefix(const ModelConfig& config) {
  return find_prefix(config, {"model.", ""}, "decoder.layers.0.self_attn.k_proj.weight");
}

// Names the shared embedding and what is tied to it. An untied output makes the model not
// computable by regroup.
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

// Names final_logits_bias, [1, V], if it is stored. transformers never trains it.
void name_logits_bias(ModelSpec& spec, const ModelConfig& config) {
  const std::string name = "final_logits_bias";
  if (config.stores(name)) {
    spec.lm_head_bias = name;
    spec.lm_head_bias_is_row = true;
    spec.constant_tensors.push_back(name);
  }
}

// Keys of transformers 3, which later versions ignore: a config that differs from the family's
// block describes another model. Blocks that normalise before have a norm at the end of the stack.
void check_old_keys(ModelSpec& spec, const ConfigReader& config, const BartNames& names) {
  const std::pair<const char*, bool> keys[] = {{"normalize_before", names.final_norms},
                                               {"add_final_layer_norm", names.final_norms},
                                               {"normalize_embedding", names.embedding_norms}};
  for (const auto& [key, value] : keys) {
    if (config.flag_or({key}, value) != value) {
      add_obstacle(spec, fmt::format("{} = {}", key, !value));
      spec.loaders_compute = false;  // they ignore the key
    }
  }
}

// BART or mBART.
ModelSpec describe_with_norms(const ModelConfig& config, bool norm_before) {
  ModelSpec spec;
  read_bart_config(spec, config, {});
  spec.max_positions = config.count({"max_position_embeddings"});
  spec.positions = PositionKind::kLearned;
  spec.position_offset = 2;
  spec.norm_placement = norm_before ? NormPlacement::kBefore : NormPlacement::kAfterResidual;
  spec.denoising = Denoising::kTextInfilling;
  spec.mask_token = config.optional_token("mask_token_id", spec.vocab_size);
  const std::string prefix = bart_prefix(config);
  name_shared_embedding(spec, config, prefix);
  spec.position_embedding = prefix + "decoder.embed_positions.weight";
  spec.encoder_position_embedding = prefix + "encoder.embed_positions.weight";
  const BartNames names{prefix, norm_before, true};
  name_bart_stacks(spec, names);
  name_logits_bias(spec, config);
  check_old_keys(spec, config, names);
  return spec;
}

void read_sinusoids(ModelSpec& spec, const ConfigReader& config, std::int64_t steps) {
  spec.max_positions = config.count({"max_position_embeddings"});
  spec.positions = PositionKind::kSinusoidal;
  spec.sinusoids.steps = steps;
  if (spec.hidden_size % 2 != 0 || steps < 1) {
    throw_bad_input("{}: d_model is {}: sinusoidal positions need an even number above 2",
                    config.where(), spec.hidden_size);
  }
}

// Older files have the tables of positions, which loaders then use.
void name_stored_tables(ModelSpec& spec, const ModelConfig& config, const std::string& prefix) {
  const auto name_if_stored = [&](std::string& name, const char* stack) {
    const std::string table = prefix + stack + ".embed_positions.weight";
    if (config.stores(table)) {
      name = table;
      spec.constant_tensors.push_back(table);
    }
  };
  name_if_stored(spec.position_embedding, "decoder");
  name_if_stored(spec.encoder_position_embedding, "encoder");
}

// What Marian, M2M100 and Pegasus share.
ModelSpec describe_translator(const ModelConfig& config, const BartDefaults& defaults,
                              const std::string& prefix, std::int64_t fewer_steps = 0) {
  ModelSpec spec;
  read_bart_config(spec, config, defaults);
  read_sinusoids(spec, config, spec.hidden_size / 2 - fewer_steps);
  spec.denoising = Denoising::kNone;
  name_shared_embedding(spec, config, prefix);
  return spec;
}

// Encoder and decoder of different vocabularies. Each has its own embedding.
void use_two_vocabularies(ModelSpec& spec, const ConfigReader& config, const std::string& prefix) {
  spec.vocab_size = config.optional_count({"decoder_vocab_size"}).value_or(spec.vocab_size);
  spec.token_embedding = prefix + "decoder.embed_tokens.weight";
  spec.tied_lookups.clear();
  spec.not_computable = "share_encoder_decoder_embeddings = false";
  spec.loaders_compute = true;
}

// What OPT, BioGPT and XGLM share.
void read_decoder(ModelSpec& spec, const ConfigReader& config) {
  spec.max_positions = config.count({"max_position_embeddings"});
  spec.position_offset = 2;
  spec.norm = NormKind::kLayerNorm;
  spec.norm_epsilon = 1e-5;  // transformers ignores layer_norm_eps
}

void use_position_table(ModelSpec& spec, const std::string& prefix) {
  spec.positions = PositionKind::kLearned;
  spec.position_embedding = prefix + "embed_positions.weight";
}

}  // namespace

// BART and mBART: encoder-decoders with learned positions, where both embeddings have two rows
// before that of the first position, and a norm after the embeddings. BART's blocks normalise after
// each residual, mBART's before, with a last norm in both stacks.

ModelSpec describe_bart(const ModelConfig& config) { return describe_with_norms(config, false); }

ModelSpec describe_mbart(const ModelConfig& config) { return describe_with_norms(config, true); }

// Marian, M2M100 (also NLLB) and Pegasus: BART's blocks with sinusoidal positions. They were
// trained on pairs of texts.

ModelSpec describe_marian(const ModelConfig& config) {
  const std::string prefix = bart_prefix(config);
  ModelSpec spec = describe_translator(config, {.start_token = 58100}, prefix);
  spec.norm_placement = NormPlacement::kAfterResidual;
  if (!config.flag_or({"share_encoder_decoder_embeddings"}, true)) {
    use_two_vocabularies(spec, config, prefix);
  }
  name_stored_tables(spec, config, prefix);
  name_bart_stacks(spec, {prefix});
  name_logits_bias(spec, config);
  check_old_keys(spec, config, {prefix});
  return spec;
}

ModelSpec describe_m2m_100(const ModelConfig& config) {
  const std::string prefix = bart_prefix(config);
  ModelSpec spec = describe_translator(config, {.activation = "relu", .scaled = true}, prefix,
                                       /*fewer_steps=*/1);
  // Positions count from the padding token's id on. Text without padding never uses earlier ones.
  spec.position_offset = config.optional_token("pad_token_id", spec.vocab_size).value_or(1) + 1;
  name_bart_stacks(spec, {prefix, true});
  check_old_keys(spec, config, {prefix, true});
  return spec;
}

ModelSpec describe_pegasus(const ModelConfig& config) {
  const std::string prefix = bart_prefix(config);
  ModelSpec spec = describe_translator(config, {.start_token = 0}, prefix);
  name_stored_tables(spec, config, prefix);
  name_bart_stacks(spec, {prefix, true});
  name_logits_bias(spec, config);
  check_old_keys(spec, config, {prefix, true});
  return spec;
}

// Whisper: mBART's blocks without a bias of keys, and an encoder that reads log-mel spectra through
// two convolutions. Its kv heads have their own keys, because transformers reads
// num_key_value_heads as another name of encoder_attention_heads.

ModelSpec describe_whisper(const ModelConfig& config) {
  ModelSpec spec;
  spec.kv_heads_key = {"kv_heads"};
  read_bart_config(spec, config, {.start_token = 50257});
  spec.embedding_scale = 1.0;  // transformers ignores scale_embedding
  spec.max_positions = config.count({"max_target_positions"});
  spec.positions = PositionKind::kLearned;
  spec.denoising = Denoising::kNone;
  if (spec.not_computable.empty()) {
    spec.not_computable = "an encoder that reads audio";
  }
  spec.loaders_compute = true;
  const std::string prefix = bart_prefix(config);
  const std::string encoder = prefix + "encoder.", decoder = prefix + "decoder.";
  spec.token_embedding = decoder + "embed_tokens.weight";
  name_output(spec, config, "proj_out.weight", /*tied=*/true);
  spec.position_embedding = decoder + "embed_positions.weight";
  spec.encoder_position_embedding = encoder + "embed_positions.weight";
  spec.constant_tensors.push_back(spec.encoder_position_embedding);
  spec.spectrum = {{encoder + "conv1.weight", encoder + "conv1.bias", false},
                   {encoder + "conv2.weight", encoder + "conv2.bias", false},
                   config.count({"num_mel_bins"}),
                   config.count({"max_source_positions"})};
  name_bart_stacks(spec, {prefix, true});
  for (std::vector<LayerTensors>* stack : {&spec.encoder_layers, &spec.layers}) {
    for (LayerTensors& layer : *stack) {
      layer.attention.k.bias.clear();
      layer.cross_attention.k.bias.clear();
    }
  }
  return spec;
}

// OPT: learned positions, where the embedding has two rows before that of the first position.
// OPT-350m normalises after the residual and projects narrower embeddings to the hidden size.
// BioGPT and XGLM scale their embeddings; XGLM's positions are sinusoids.

ModelSpec describe_biogpt(const ModelConfig& config) {
  ModelSpec spec;
  read_stack_sizes(spec, config);
  spec.intermediate_size = config.count({"intermediate_size"});
  read_decoder(spec, config);
  const std::string prefix = name_stack(
      spec, config, {"biogpt.", "embed_tokens", "layers.", "layer_norm"}, kBartBlock, kAllBiases);
  use_position_table(spec, prefix);
  spec.activation = config.activation_or({"hidden_act"}, "gelu");
  read_embedding_scale(spec, config, true);
  name_output(spec, config, "output_projection.weight", /*tied=*/true);
  return spec;
}

ModelSpec describe_xglm(const ModelConfig& config) {
  ModelSpec spec;
  read_stack_sizes(spec, config, {"d_model", "hidden_size"},
                   {"attention_heads", "num_attention_heads"}, {"num_layers", "num_hidden_layers"});
  spec.intermediate_size = config.count({"ffn_dim"});
  read_decoder(spec, config);
  name_stack(spec, config, {"model.", "embed_tokens", "layers.", "layer_norm"}, kBartBlock,
             kAllBiases);
  read_sinusoids(spec, config, spec.hidden_size / 2 - 1);
  spec.activation = config.activation_or({"activation_function"}, "gelu");
  read_embedding_scale(spec, config, true);
  if (config.flag_or({"add_cross_attention"}, false)) {
    spec.not_computable = "add_cross_attention";
  }
  name_output(spec, config, "lm_head.weight", /*tied=*/true);
  return spec;
}

ModelSpec describe_opt(const ModelConfig& config) {
  ModelSpec spec;
  read_stack_sizes(spec, config);
  spec.intermediate_size = config.count({"ffn_dim"});
  spec.embedding_size = config.optional_count({"word_embed_proj_dim"}).value_or(spec.hidden_size);
  const std::string prefix =
      find_prefix(config, {"model.decoder.", "decoder."}, "embed_tokens.weight");
  read_decoder(spec, config);
  const bool bias = config.flag_or({"enable_bias"}, true);
  name_blocks(spec.layers, prefix + "layers.", kBartBlock, {bias, bias, bias, true});
  spec.token_embedding = prefix + "embed_tokens.weight";
  use_position_table(spec, prefix);
  spec.activation = config.activation_or({"activation_function"}, "relu");
  const bool norm_before = config.flag_or({"do_layer_norm_before"}, true);
  spec.norm_placement = norm_before ? NormPlacement::kBefore : NormPlacement::kAfterResidual;
  spec.not_computable = unusual_flag(config, {{"layer_norm_elementwise_affine", true}});
  if (spec.embedding_size != spec.hidden_size) {
    spec.project_in = linear_at(prefix + "project_in", false);
    spec.project_out = linear_at(prefix + "project_out", false);
  }
  if (norm_before && !config.flag_or({"_remove_final_layer_norm"}, false)) {
    spec.final_norm = norm_at(prefix + "final_layer_norm", true);
  }
  name_output(spec, config, "lm_head.weight", /*tied=*/true);
  return spec;
}

}  // namespace regroup
