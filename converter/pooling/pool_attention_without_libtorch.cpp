// What of pool_attention.h needs no linear algebra. The report stays empty.
#include <algorithm>

#include "converter/pooling/pool_attention.h"
#include "converter/pooling/select.h"
#include "formats/error.h"

namespace regroup {
namespace {

DenseLinear only_heads(const DenseLinear& linear, const std::vector<std::int64_t>& chosen,
                       std::int64_t head_dim) {
  DenseLinear result{static_cast<std::int64_t>(chosen.size()) * head_dim, linear.inputs, {}, {}};
  const auto append = [&](const std::vector<double>& from, std::int64_t size,
                          std::vector<double>& to) {
    for (const std::int64_t head : chosen) {
      if (!from.empty()) {
        to.insert(to.end(), from.begin() + head * size, from.begin() + (head + 1) * size);
      }
    }
  };
  append(linear.weight, head_dim * linear.inputs, result.weight);
  append(linear.bias, head_dim, result.bias);
  return result;
}

}  // namespace

PooledAttention pool_attention(const AttentionHeads& heads, const PoolingTask& task) {
  if (task.groups < 1 || heads.kv_heads % task.groups != 0) {
    throw_usage("{} kv heads cannot become {}: no divisor", heads.kv_heads, task.groups);
  }
  PooledAttention result{heads, {}};
  if (task.groups == heads.kv_heads) {
    return result;
  }
  if (task.method != PoolMethod::kSelect) {
    throw_usage("pooling method {} needs LibTorch: this build of regroup is without it",
                name_of(task.method));
  }
  const auto chosen = select_heads(heads, task.groups, task.kv_inputs);
  result.heads.kv_heads = task.groups;
  result.heads.k = only_heads(heads.k, chosen, heads.head_dim);
  result.heads.v = only_heads(heads.v, chosen, heads.head_dim);
  return result;
}

}  // namespace regroup
