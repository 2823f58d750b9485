// How fast RoPE turns each pair of features. Su et al., RoFormer, https://arxiv.org/abs/2104.09864
#pragma once

#include <cstdint>
#include <vector>

#include "formats/spec/model_spec.h"

namespace regroup {

/// Radians per position for each of the R/2 pairs: theta^(-2i/R), scaled as the spec says. `length`
/// is the sequence length; only kDynamic and kLongRope use it.
std::vector<double> rope_frequencies(const RopeSpec& spec, std::int64_t length = 0);

}  // namespace regroup
