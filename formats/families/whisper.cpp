// Whisper: mBART's blocks without a bias of keys, and an encoder that reads log-mel spectra through
// two convolutions. Its kv heads have their own keys, because transformers reads
// num_key_value_heads as another name of encoder_attention_heads.
#include "formats/families/bart_layout.h"
#include "formats/families/families.h"

namespace regroup {

ModelSpec describe_whisper(const ConfigReader& config, const Checkpoint& checkpoint) {
  ModelSpec spec;
  spec.kv_heads_key = {"kv_heads"};
  read_bart_config(spec, config, checkpoint, {.start_token = 50257});
  spec.embedding_scale = 1.0;  // transformers ignores scale_embedding
  spec.max_positions = config.count({"max_target_positions"});
  spec.positions = PositionKind::kLearned;
  spec.denoising = Denoising::kNone;
  if (spec.not_computable.empty()) {
    spec.not_computable = "an encoder that reads audio";
  }
  spec.loaders_compute = true;
  const std::string prefix = bart_prefix(checkpoint);
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
  name_bart_stacks(spec, {prefix, true, false, false});
  return spec;
}

}  // namespace regroup
