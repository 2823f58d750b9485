// Stubs for functions that need linear algebra.
#include "converter/pooling/pool_attention.h"
#include "formats/base/error.h"

namespace regroup {

PooledAttention pool_attention(const AttentionHeads& heads, const PoolingTask& task) {
  if (task.groups == heads.kv_heads) {
    return {heads, {}};
  }
  throw_usage("pooling method {} needs LibTorch: this build of regroup is without it",
              name_of(task.method));
}

SimilarHeads find_similar_heads(const AttentionHeads&, const PoolingTask&) {
  throw_usage("--grouping similar needs LibTorch: this build of regroup is without it");
}

std::vector<double> losses_of_groups(const AttentionHeads&, const PoolingTask&,
                                     const std::vector<HeadGroup>&) {
  throw_usage("--grouping similar needs LibTorch: this build of regroup is without it");
}

}  // namespace regroup
