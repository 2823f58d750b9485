// Says that what pool_attention.h declares needs linear algebra.
#include "converter/pooling/pool_attention.h"
#include "formats/error.h"

namespace regroup {

PooledAttention pool_attention(const AttentionHeads& heads, const PoolingTask& task) {
  if (task.groups == heads.kv_heads) {
    return {heads, {}};
  }
  throw_usage("pooling method {} needs LibTorch: this build of regroup is without it",
              name_of(task.method));
}

}  // namespace regroup
