// Which kv heads of a layer lose least where they share one.
#pragma once

#include "converter/heads/attention_heads.h"
#include "converter/heads/partition.h"
#include "converter/pooling/solvers/pool_attention.h"

namespace regroup {

/// A layer's partition, and what it loses beside that into neighbours: parts of the layer's energy
/// (GroupReport), of keys and values added, so that 2 is all there is.
struct SimilarHeads {
  Partition partition;
  double loss = 0.0;
  double contiguous_loss = 0.0;
};

/// What similar_partition() finds where a group costs what `task.method` loses in it. Throws as
/// pool_attention() does.
SimilarHeads find_similar_heads(const AttentionHeads& heads, const PoolingTask& task);

/// What `task.method` loses in each of those groups of heads, as parts of the layer's energy (see
/// SimilarHeads). Throws the same.
std::vector<double> losses_of_groups(const AttentionHeads& heads, const PoolingTask& task,
                                     const std::vector<HeadGroup>& groups);

}  // namespace regroup
