// RoPE settings in configs: rope_theta and rope_scaling (transformers up to v4), or
// rope_parameters.
#pragma once

#include <cstdint>

#include "formats/families/config_reader.h"
#include "formats/spec/model_spec.h"

namespace regroup {

/// Makes `spec` a RoPE model. Reads theta, the rotated fraction of each head (`default_partial` if
/// the config does not say) and the scaling. An unknown rope_type makes the model not computable.
/// spec.head_dim and spec.max_positions must be set before the call.
void read_rope(ModelSpec& spec, const ConfigReader& config, double default_partial = 1.0);

}  // namespace regroup
