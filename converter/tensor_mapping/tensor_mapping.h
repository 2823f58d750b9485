// How the tensors of one model become those of another that computes the same: every container,
// every layout and every exact re-target is a ModelSpec to map tensors to.
#pragma once

#include <vector>

#include "converter/heads/head_order.h"
#include "converter/pooling/inputs/pool_method.h"
#include "converter/tensor_mapping/tensor_step.h"
#include "formats/checkpoint/checkpoint.h"
#include "formats/spec/model_spec.h"

namespace regroup {

/// Three views of one model. They agree in what they compute, see obstacles_between().
struct TensorMapping {
  const ModelSpec& source;   ///< as stored in `checkpoint`
  const ModelSpec& grouped;  ///< the same with the kv heads that are to be left
  const ModelSpec& target;   ///< the result; may store a kv head several times
  const Checkpoint& checkpoint;
  Pooling pooling = {};
  HeadOrder order = {};  ///< in which the heads of `source` become those of the others
};

/// Steps for the attention tensors of `target`, in its order. Throws kBadInput for tensors that
/// cannot be pooled.
std::vector<TensorStep> map_attention_tensors(const TensorMapping& models);

/// Steps for every tensor of `target`.
std::vector<TensorStep> map_model_tensors(const TensorMapping& models);

}  // namespace regroup
