// Pooling the heads of one attention, and refining them.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "converter/heads/calibration.h"
#include "converter/heads/heads.h"
#include "converter/pooling/pool_attention.h"
#include "formats/model/conversion_record.h"
#include "formats/spec/model_spec.h"
#include "formats/tensors/checkpoint.h"

namespace regroup {

// Interface for improving a pooled attention further.

/// How far an attention's output is from the source's before refining and after it: expected
/// squared error / expected square, over text that was not used to improve it.
struct RefinementReport {
  double error_before = 0.0, error_after = 0.0;
  double learning_rate = 0.0;  ///< given or found
};

/// Progress of refining, after one step on one attention.
struct RefinementStep {
  AttentionRole role = AttentionRole::kSelf;
  std::size_t layer = 0;
  std::int64_t step = 0;  ///< of steps(), counted from 1
  double error = 0.0;     ///< as in RefinementReport, on the text of this step
};

/// Whether heads of that model can be refined: not if each key head has norm weights of its own,
/// which shared heads cannot have.
inline bool can_refit(const ModelSpec& spec) { return spec.qk_norm != QkNorm::kPerHead; }

class AttentionRefiner {
 public:
  virtual ~AttentionRefiner() = default;

  /// Changes the heads of one pooled attention, whose query heads are those of the source in
  /// `query_order`. Called once for each attention, in the order of computation: encoder before
  /// decoder, layer by layer, self-attention before cross-attention.
  virtual RefinementReport refine(AttentionRole role, std::size_t layer,
                                  std::span<const std::int64_t> query_order,
                                  AttentionHeads& heads) = 0;

  /// Steps per attention.
  virtual std::int64_t steps() const { return 0; }

  /// Sets `progress`, called after each step on the refining thread.
  void report_to(std::function<void(const RefinementStep&)> progress) {
    progress_ = std::move(progress);
  }

  /// The recipe, for the record in the result.
  virtual Recipe recipe() const = 0;

  /// The cost of refining into `grouped`, as the number of tokens of uptraining with the same
  /// number of multiplications with weights.
  virtual double training_token_equivalents(const ModelSpec& grouped) const = 0;

 protected:
  std::function<void(const RefinementStep&)> progress_;  ///< may be empty
};

// Pools the layers of a model one at a time, on demand.

/// Report on the pooling of one attention.
struct LayerReport {
  AttentionRole role = AttentionRole::kSelf;
  std::size_t layer = 0;
  std::vector<GroupReport> groups;
  /// Whether they were measured over the statistics of a text. Statistics derived from norm weights
  /// do not predict the model's loss.
  bool over_text = false;
  std::optional<RefinementReport> refinement;
};

/// The fraction of a layer's energy that its groups keep, weighted by their shares.
double keys_kept(const LayerReport& layer);
double values_kept(const LayerReport& layer);

/// The measurements of the layer: energies if groups were measured over a text, and errors if it
/// was refitted.
RecordedLayer measurements_of(const LayerReport& layer);

/// A unique number for each attention of a model, see heads_to_average().
std::uint64_t stream_of(AttentionRole role, std::size_t layer);

struct ConversionPlan;

/// Caches the last layer, since the tensors of a layer are mostly read consecutively.
class AttentionPooler {
 public:
  /// Reads heads of the plan's source in `checkpoint` and pools them to as many as its `grouped`
  /// has. Without a calibration, statistics are derived from the norms before the attention. Heads
  /// are first permuted by the requested order; the refiner, if there is one and this `refines`,
  /// runs last and requires layers in the order of computation. Keeps references to all arguments.
  AttentionPooler(const ConversionPlan& plan, const Checkpoint& checkpoint,
                  const std::atomic<bool>* stop = nullptr, bool refines = true)
      : plan_(plan), checkpoint_(checkpoint), stop_(stop), refines_(refines) {}

  /// The pooled heads of one layer, valid until the next call. Throws kBadInput for NaN and
  /// infinities in them, kInterrupted soon after `stop`, if given, turns true.
  const AttentionHeads& layer(AttentionRole role, std::size_t layer);

  /// Finds the heads of the source that should share one head in that layer. Throws the same.
  SimilarHeads similar_heads(AttentionRole role, std::size_t layer) const;

  /// The losses of groups of the source's heads in that layer: see losses_of_groups().
  std::vector<double> losses(AttentionRole role, std::size_t layer,
                             const std::vector<HeadGroup>& groups) const;

  /// The reports of all layers so far, in the order of roles and layers.
  std::vector<LayerReport> reports() const;

 private:
  InputMoments moments(AttentionRole role, std::size_t layer, InputSide side,
                       std::int64_t width) const;
  KeyDistances distances(AttentionRole role, std::size_t layer) const;
  AttentionHeads read(AttentionRole role, std::size_t layer) const;
  PoolingTask task(AttentionRole role, std::size_t layer, const AttentionHeads& heads) const;
  PooledAttention pool(AttentionRole role, std::size_t layer) const;

  const ConversionPlan& plan_;
  const Checkpoint& checkpoint_;
  const std::atomic<bool>* stop_;
  bool refines_;
  std::optional<HeadOrder::Place> last_;
  AttentionHeads heads_;
  std::map<HeadOrder::Place, LayerReport> reports_;
};

}  // namespace regroup
