// The tensors of a result: from which tensors of the source each is made, the steps of a plan,
// and what the user is told of it.
#pragma once

#include <vector>

#include "converter/convert/conversion_plan.h"
#include "converter/convert/tensor_step.h"
#include "converter/heads/heads.h"
#include "converter/heads/pool_method.h"
#include "formats/spec/model_spec.h"
#include "formats/tensors/checkpoint.h"

namespace regroup {

// Maps the tensors of one model to those of an equivalent one. Containers, layouts and exact
// re-targets are all expressed as a target ModelSpec.

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

// Maps the attention tensors of one model to those of another: reorders, pools, packs and
// transposes heads.

/// Adds the steps of one layer's attention at a time.
class AttentionMapping {
 public:
  /// Both arguments must outlive this object.
  AttentionMapping(const TensorMapping& models, TensorStepBuilder& steps);

  /// Maps queries, keys, values, output and the norms of queries and keys; `fold` is folded into
  /// the maps that read the layer's input. Throws kBadInput if heads with per-head norms would be
  /// pooled.
  void attention(AttentionRole role, std::size_t layer, const NormFold* fold = nullptr);

  /// Maps T5's relative bias if the layer holds one.
  void relative_bias(AttentionRole self, std::size_t layer);

 private:
  struct Projections {
    Features q, k, v, o;
  };

  Projections projections(AttentionRole role, std::size_t layer) const;
  void take_pooled(Projections& parts, AttentionRole role, std::size_t layer) const;
  void head_norms(AttentionRole role, std::size_t layer, const Projections& parts);
  void norms(const std::vector<NormTensors>& from, const std::vector<NormTensors>& to,
             const Features& heads);
  void outputs(const AttentionLayout& from, const AttentionLayout& to, const Rows& heads);

  const ModelSpec& source_;
  const ModelSpec& grouped_;
  const ModelSpec& target_;
  const Checkpoint& checkpoint_;
  const Pooling& pooling_;
  const HeadOrder& order_;
  Rows rope_order_;
  TensorStepBuilder& steps_;
};

// Plans the tensors of a conversion's result, one step for each.

/// Fills in plan.steps and plan.dropped for a plan whose specs, container and pooling are set.
/// Throws kUsage for a tensor of `source` that the result cannot name or whose type it cannot hold,
/// kBadInput for tensors that are missing, of the wrong shape, or part of a pooled projection that
/// the config does not describe.
void plan_steps(ConversionPlan& plan, const Model& source, const ConversionRequest& request);

// Notes for the user about the result of a conversion.

/// Appends to plan.notes of an otherwise complete plan: which programs load the result, limits of
/// the pooling method on this model, which heads moved, which tensors grow because their type
/// cannot be written.
void add_notes(ConversionPlan& plan, const Checkpoint& source);

}  // namespace regroup
