// How much the kv heads of a layer resemble one another, as they are and in bases that suit.
#pragma once

#include <cstdint>
#include <vector>

#include "converter/heads/attention_heads.h"
#include "converter/pooling/solvers/pool_attention.h"

namespace regroup {

/// Of N heads, each beside each: [N, N], row-major. 1: the same up to a factor; 0: nothing in
/// common; a head that is zero resembles none but itself.
struct SimilarityMatrix {
  std::vector<double> raw;      ///< E[x_i·x_j] / √(E|x_i|² E|x_j|²)
  std::vector<double> aligned;  ///< the same after the rotation of x_j that makes it most
};

struct HeadSimilarity {
  SimilarityMatrix keys, values;
};

/// Over the inputs that `task` tells the moments of. Keys are rotated as RoPE allows, plane by
/// plane; where keys are normalised not at all. The largest E[x_i·R x_j] over all rotations R is
/// the sum of the singular values of E[x_i x_jᵀ] (Schönemann 1966). Throws as pool_attention().
HeadSimilarity similarity_of_heads(const AttentionHeads& heads, const PoolingTask& task);

}  // namespace regroup
