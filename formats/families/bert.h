// What the encoders of this folder have in common.
#pragma once

#include "formats/spec/config_reader.h"
#include "formats/spec/model_spec.h"

namespace regroup {

/// Sizes, heads and the mask token under BERT's names; attention in both directions, LayerNorm.
void read_encoder_sizes(ModelSpec& spec, const ConfigReader& config, const Checkpoint& checkpoint);

}  // namespace regroup
