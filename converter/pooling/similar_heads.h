// Finds the kv heads of a layer that lose least when they share one.
#pragma once

#include "converter/heads/heads.h"
#include "converter/heads/partition.h"
#include "converter/pooling/pool_attention.h"

namespace regroup {

/// A layer's partition with its loss, and the loss of the contiguous one: fractions of the layer's
/// energy (GroupReport), keys and values added, so at most 2.
struct SimilarHeads {
  Partition partition;
  double loss = 0.0;
  double contiguous_loss = 0.0;
};

/// The result of similar_partition() with the loss of `task.method` as the cost of a group. Throws
/// as pool_attention() does.
SimilarHeads find_similar_heads(const AttentionHeads& heads, const PoolingTask& task);

/// The loss of `task.method` in each of those groups of heads, as fractions of the layer's energy
/// (see SimilarHeads). Throws the same.
std::vector<double> losses_of_groups(const AttentionHeads& heads, const PoolingTask& task,
                                     const std::vector<HeadGroup>& groups);

}  // namespace regroup
