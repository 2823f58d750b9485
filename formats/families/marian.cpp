// Marian, M2M100 (also NLLB) and Pegasus: BART's blocks with sinusoidal positions. They were
// trained on pairs of texts.
#include "formats/base/error.h"
#include "formats/config/decoder_sizes.h"
#include "formats/families/bart_layout.h"
#include "formats/families/families.h"

namespace regroup {
namespace {

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
void name_stored_tables(ModelSpec& spec, const Checkpoint& checkpoint, const std::string& prefix) {
  const auto name_if_stored = [&](std::string& name, const char* stack) {
    const std::string table = prefix + stack + ".embed_positions.weight";
    if (checkpoint.find(table) != nullptr) {
      name = table;
      spec.constant_tensors.push_back(table);
    }
  };
  name_if_stored(spec.position_embedding, "decoder");
  name_if_stored(spec.encoder_position_embedding, "encoder");
}

// Encoder and decoder of different vocabularies. Each has its own embedding.
void use_two_vocabularies(ModelSpec& spec, const ConfigReader& config, const std::string& prefix) {
  spec.vocab_size = config.optional_count({"decoder_vocab_size"}).value_or(spec.vocab_size);
  spec.token_embedding = prefix + "decoder.embed_tokens.weight";
  spec.tied_lookups.clear();
  spec.not_computable = "share_encoder_decoder_embeddings = false";
  spec.loaders_compute = true;
}

}  // namespace

ModelSpec describe_marian(const ConfigReader& config, const Checkpoint& checkpoint) {
  ModelSpec spec;
  read_bart_config(spec, config, checkpoint, {.start_token = 58100});
  read_sinusoids(spec, config, spec.hidden_size / 2);
  spec.norm_placement = NormPlacement::kAfterResidual;
  spec.denoising = Denoising::kNone;
  const std::string prefix = bart_prefix(checkpoint);
  name_shared_embedding(spec, config, prefix);
  if (!config.flag_or({"share_encoder_decoder_embeddings"}, true)) {
    use_two_vocabularies(spec, config, prefix);
  }
  name_stored_tables(spec, checkpoint, prefix);
  name_bart_stacks(spec, {prefix});
  name_logits_bias(spec, checkpoint);
  check_old_keys(spec, config, {false, false, false});
  return spec;
}

ModelSpec describe_m2m_100(const ConfigReader& config, const Checkpoint& checkpoint) {
  ModelSpec spec;
  read_bart_config(spec, config, checkpoint, {.activation = "relu", .scaled = true});
  read_sinusoids(spec, config, spec.hidden_size / 2 - 1);
  // Positions count from the padding token's id on. Text without padding never uses earlier ones.
  spec.position_offset = config.optional_token("pad_token_id", spec.vocab_size).value_or(1) + 1;
  spec.denoising = Denoising::kNone;
  const std::string prefix = bart_prefix(checkpoint);
  name_shared_embedding(spec, config, prefix);
  name_bart_stacks(spec, {prefix, true});
  check_old_keys(spec, config, {true, true, false});
  return spec;
}

ModelSpec describe_pegasus(const ConfigReader& config, const Checkpoint& checkpoint) {
  ModelSpec spec;
  read_bart_config(spec, config, checkpoint, {.start_token = 0});
  read_sinusoids(spec, config, spec.hidden_size / 2);
  spec.denoising = Denoising::kNone;
  const std::string prefix = bart_prefix(checkpoint);
  name_shared_embedding(spec, config, prefix);
  name_stored_tables(spec, checkpoint, prefix);
  name_bart_stacks(spec, {prefix, true});
  name_logits_bias(spec, checkpoint);
  check_old_keys(spec, config, {true, true, false});
  return spec;
}

}  // namespace regroup
