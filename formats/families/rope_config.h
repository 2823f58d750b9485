// RoPE as configs spell it: rope_theta and rope_scaling (transformers up to v4), or
// rope_parameters.
#pragma once

#include <cstdint>

#include "formats/families/config_reader.h"
#include "formats/spec/model_spec.h"

namespace regroup {

/// Makes `spec` a RoPE model and reads theta, the rotating part of each head (`default_partial`
/// where the config does not say) and the scaling. A rope_type that is unknown makes it not
/// computable. spec.head_dim and spec.max_positions must be set.
void read_rope(ModelSpec& spec, const ConfigReader& config, double default_partial = 1.0);

}  // namespace regroup
