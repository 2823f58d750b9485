// Norms of queries and keys, for methods that change the basis of heads.
//
// q and k are w · W y / r, where r is the root mean square of W y: over all heads together, or over
// each head. Pooling solves for diag(w) W / √E r², a linear map. What it finds is normalised again,
// by its own root mean square; so a token's key is too large by as much as that is too small.
// Other weights, whose squares count more in it, bring it closer to the source's r.
#pragma once

#include "converter/heads/heads.h"
#include "converter/pooling/pool_attention.h"

namespace regroup {

/// Whether the task solves for heads whose queries and keys are normalised.
bool absorbs_norms(const AttentionHeads& heads, const PoolingTask& task);

/// Whether each head has a norm of its own, with the weights of all.
bool normalises_each_head(const AttentionHeads& heads);

/// The same heads with norms moved into the maps of queries and keys, as far as a linear map can;
/// unchanged if absorbs_norms() says no.
AttentionHeads without_norms(AttentionHeads heads, const PoolingTask& task);

/// Gives heads that were pooled from without_norms(source) norms of their own, and their maps of
/// queries and keys the usual size of the source's. Where norms are not absorbed, a shared head has
/// the mean of its members' weights, or those of the head that it is.
void set_norms(const AttentionHeads& source, const PoolingTask& task, AttentionHeads& pooled);

}  // namespace regroup
