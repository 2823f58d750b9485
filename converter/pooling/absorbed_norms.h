// Norms of queries and keys, for methods that change the basis of heads.
//
// q and k are w · W y / r, where r is the root mean square of W y: over all heads together, or over
// each head. Pooling solves for diag(w) W / √E r², a linear map. The result is normalised again, by
// its own root mean square r'. A token whose r' is small compared with r gets too large a key. New
// weights let each feature count more or less in r', which brings r' closer to r.
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

/// Gives heads that were pooled from `source` their norms. If norms are absorbed, `folded` is what
/// was pooled: q and k get new norms, and their maps are multiplied by the sizes that were divided
/// out, which matter to the norms' epsilon. Otherwise `folded` is not read: a kv head has the mean
/// of its members' norm weights, or with kFirst and kRandom those of the member that it keeps.
void set_norms(const AttentionHeads& source, const FoldedHeads& folded, const PoolingTask& task,
               AttentionHeads& pooled);

}  // namespace regroup
