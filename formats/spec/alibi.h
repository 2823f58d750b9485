// ALiBi slopes: the fixed penalty per token of distance that each query head carries.
#pragma once

#include <cstdint>
#include <vector>

namespace regroup {

/// Slopes of `query_heads` heads (Press et al. 2022, and its public code for head counts that are
/// no power of two). With c the largest power of two up to H and M = bias_max: 2^(-M(h+1)/c) for
/// h < c, then 2^(-(M/2)(2(h-c)+1)/c), each rounded once to double.
std::vector<double> alibi_slopes(std::int64_t query_heads, double bias_max = 8.0);

}  // namespace regroup
