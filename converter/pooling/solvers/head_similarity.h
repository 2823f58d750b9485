// Similarity of the kv heads of a layer, as they are and after alignment.
#pragma once

#include <cstdint>
#include <vector>

#include "converter/heads/attention_heads.h"
#include "converter/pooling/solvers/pool_attention.h"

namespace regroup {

/// Pairwise similarities of N heads: [N, N], row-major. 1: equal up to a factor; 0: uncorrelated. A
/// zero head is similar only to itself.
struct SimilarityMatrix {
  std::vector<double> raw;      ///< E[x_i·x_j] / √(E|x_i|² E|x_j|²)
  std::vector<double> aligned;  ///< the same after the rotation of x_j that makes it most
};

struct HeadSimilarity {
  SimilarityMatrix keys, values;
};

/// Computed over the inputs whose moments are in `task`. Keys are rotated only as RoPE allows,
/// plane by plane; normalised keys are not rotated. The largest E[x_i·R x_j] over all rotations R
/// is the sum of the singular values of E[x_i x_jᵀ] (Schönemann 1966). Throws as pool_attention().
HeadSimilarity similarity_of_heads(const AttentionHeads& heads, const PoolingTask& task);

}  // namespace regroup
