// Maps the tensors of one model to those of an equivalent one. Containers, layouts and exact
// re-targets are all expressed as a target ModelSpec.
#pragma once

#include <vector>

#include "converter/heads/head_order.h"
#include "converter/pooling/inputs/pool_method.h"
#include "converter/tensor_mapping/tensor_step.h"
#include "formats/checkpoint/checkpoint.h"
#include "formats/spec/model_spec.h"

namespace regroup {

/// Three views of one model that compute the same, see obstacles_between().
struct TensorMapping {
  const ModelSpec& source;   ///< as stored in `checkpoint`
  const ModelSpec& grouped;  ///< the same with the remaining kv heads
  const ModelSpec& target;   ///< the result; may store a kv head several times
  const Checkpoint& checkpoint;
  Pooling pooling = {};
  HeadOrder order = {};  ///< of the heads of `source` in the others
};

/// Steps for the attention tensors of `target`, in its order. Throws kBadInput for tensors that
/// cannot be pooled.
std::vector<TensorStep> map_attention_tensors(const TensorMapping& models);

/// Steps for every tensor of `target`.
std::vector<TensorStep> map_model_tensors(const TensorMapping& models);

}  // namespace regroup
