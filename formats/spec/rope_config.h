// RoPE settings in configs: rope_theta and rope_scaling (transformers up to v4), or
// rope_parameters.
#pragma once

#include "formats/spec/config_reader.h"
#include "formats/spec/model_spec.h"

namespace regroup {

/// A family's defaults for absent config keys.
struct RopeDefaults {
  double theta = 10000.0;
  double partial = 1.0;             ///< the rotated fraction of each head
  double original_positions = 0.0;  ///< of LongRoPE's pretraining; 0: as the scaling says
};

/// Makes `spec` a RoPE model. Reads theta, the rotated fraction of each head and the scaling. An
/// unknown rope_type makes the model not computable. spec.head_dim and spec.max_positions must be
/// set before the call. Throws kBadInput for impossible values.
void read_rope(ModelSpec& spec, const ConfigReader& config, const RopeDefaults& defaults = {});

/// The same for models whose layers with a sliding window have a RoPE of their own: rope_parameters
/// has full_attention and sliding_attention. Windows must be set before the call. Without it,
/// rope_scaling applies to the layers without a window.
void read_rope_of_windows(ModelSpec& spec, const ConfigReader& config, const RopeDefaults& whole,
                          const RopeDefaults& in_window);

}  // namespace regroup
