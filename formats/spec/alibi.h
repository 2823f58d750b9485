// Numbers of positions: ALiBi's slopes and RoPE's frequencies.
#pragma once

#include <cstdint>
#include <vector>

#include "formats/spec/model_spec.h"

namespace regroup {

// ALiBi slopes: each query head's fixed penalty per token of distance.

/// The slopes of `query_heads` heads (Press et al. 2022; for head counts that are not a power of
/// two, its public code). With c the largest power of two up to H and M = bias_max: 2^(-M(h+1)/c)
/// for h < c, then 2^(-(M/2)(2(h-c)+1)/c), each rounded once to double.
std::vector<double> alibi_slopes(std::int64_t query_heads, double bias_max = 8.0);

// How fast RoPE turns each pair of features. Su et al., RoFormer, https://arxiv.org/abs/2104.09864

/// Radians per position for each of the R/2 pairs: theta^(-2i/R), scaled as the spec says. `length`
/// is the sequence length; only kDynamic and kLongRope use it.
std::vector<double> rope_frequencies(const RopeSpec& spec, std::int64_t length = 0);

}  // namespace regroup
