// ALiBi slopes: each query head's fixed penalty per token of distance.
#pragma once

#include <cstdint>
#include <vector>

namespace regroup {

/// The slopes of `query_heads` heads (Press et al. 2022; for head counts that are not a power of
/// two, its public code). With c the largest power of two up to H and M = bias_max: 2^(-M(h+1)/c)
/// for h < c, then 2^(-(M/2)(2(h-c)+1)/c), each rounded once to double.
std::vector<double> alibi_slopes(std::int64_t query_heads, double bias_max = 8.0);

}  // namespace regroup
