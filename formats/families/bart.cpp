// BART and mBART: encoder-decoders with learned positions, where both embeddings have two rows
// before that of the first position, and a norm after the embeddings. BART's blocks normalise after
// each residual, mBART's before, with a last norm in both stacks.
#include "formats/families/bart_layout.h"
#include "formats/families/families.h"

namespace regroup {
namespace {

ModelSpec describe_with_norms(const ConfigReader& config, const Checkpoint& checkpoint,
                              bool norm_before) {
  ModelSpec spec;
  read_bart_config(spec, config, checkpoint, {});
  spec.max_positions = config.count({"max_position_embeddings"});
  spec.positions = PositionKind::kLearned;
  spec.position_offset = 2;
  spec.norm_placement = norm_before ? NormPlacement::kBefore : NormPlacement::kAfterResidual;
  spec.denoising = Denoising::kTextInfilling;
  spec.mask_token = config.optional_token("mask_token_id", spec.vocab_size);
  const std::string prefix = bart_prefix(checkpoint);
  name_shared_embedding(spec, config, prefix);
  spec.position_embedding = prefix + "decoder.embed_positions.weight";
  spec.encoder_position_embedding = prefix + "encoder.embed_positions.weight";
  name_bart_stacks(spec, {prefix, norm_before, true});
  name_logits_bias(spec, checkpoint);
  check_old_keys(spec, config, {norm_before, norm_before, true});
  return spec;
}

}  // namespace

ModelSpec describe_bart(const ConfigReader& config, const Checkpoint& checkpoint) {
  return describe_with_norms(config, checkpoint, false);
}

ModelSpec describe_mbart(const ConfigReader& config, const Checkpoint& checkpoint) {
  return describe_with_norms(config, checkpoint, true);
}

}  // namespace regroup
