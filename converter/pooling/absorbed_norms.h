// Norms of queries and keys, for methods that change the basis of heads.
//
// q and k are w · W y / r, where r is the root mean square of W y: over all heads together, or over
// each head. Pooling solves for diag(w) W / √E r², a linear map. What it finds is normalised again,
// by its own root mean square; so a token's key is too large by as much as that is too small.
// Other weights, whose squares count more in it, bring it closer to the source's r.
#pragma once

#include <vector>

#include "converter/heads/heads.h"
#include "converter/pooling/combination.h"
#include "converter/pooling/head_moments.h"
#include "converter/pooling/pool_attention.h"

namespace regroup {

/// Whether the task solves for heads whose queries and keys are normalised.
bool absorbs_norms(const AttentionHeads& heads, const PoolingTask& task);

/// Whether each head has a norm of its own, with the weights of all.
bool normalises_each_head(const AttentionHeads& heads);

/// Heads whose norms are in the maps of queries and keys, as far as a linear map can have them.
struct FoldedHeads {
  AttentionHeads heads;
  /// By what each query and kv head was divided, √E r².
  std::vector<double> q_sizes = {}, k_sizes = {};
};

/// A copy of heads for which absorbs_norms() says yes.
FoldedHeads without_norms(const AttentionHeads& heads, const PoolingTask& task);

/// Mixes the free features of a group's shared key, and turns its planes if each head is
/// normalised, so that they are about those of the keys that are restored from it: norms and their
/// weights belong to features.
void align(Combination& keys, const BasisIndices& basis, bool planes);

/// Gives heads that were pooled from `folded`, of `source`, norms of their own, and back the sizes
/// that were divided out, which norms ignore but for their epsilon. Where norms are not absorbed, a
/// shared head has the mean of its members' weights, or those of the head that it is.
void set_norms(const AttentionHeads& source, const FoldedHeads& folded, const PoolingTask& task,
               AttentionHeads& pooled);

}  // namespace regroup
