#include "formats/families/encoders/encoder_sizes.h"

#include "formats/config/decoder_sizes.h"
#include "formats/families/families.h"

namespace regroup {

void read_encoder_sizes(ModelSpec& spec, const ConfigReader& config, const Checkpoint& checkpoint) {
  spec.hidden_size = config.count({"hidden_size"});
  set_heads(spec, config, {"num_attention_heads"}, std::nullopt);
  read_stack_sizes(spec, config, {"num_hidden_layers"}, checkpoint);
  spec.intermediate_size = config.count({"intermediate_size"});
  spec.causal = false;
  spec.norm = NormKind::kLayerNorm;
  spec.mask_token = config.optional_token("mask_token_id", spec.vocab_size);
}

}  // namespace regroup
