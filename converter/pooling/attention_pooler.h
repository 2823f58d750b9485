// The layers of a model, pooled one at a time as they are asked for.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "converter/pooling/attention_refiner.h"
#include "converter/pooling/calibration.h"
#include "converter/pooling/pool_attention.h"
#include "formats/checkpoint.h"
#include "formats/model_spec.h"

namespace regroup {

/// What pooling did to one attention.
struct LayerReport {
  AttentionRole role = AttentionRole::kSelf;
  std::size_t layer = 0;
  std::vector<GroupReport> groups;
  std::optional<RefinementReport> refinement;
};

/// A number of its own for each attention of a model, see heads_to_average().
std::uint64_t stream_of(AttentionRole role, std::size_t layer);

/// Throws kUsage where heads of `source` cannot be brought into a common basis by a method that
/// does so: values are clamped, or it is not known what else is computed with them.
void check_can_pool(const ModelSpec& source, PoolMethod method);

/// Keeps the last layer, since the tensors of a layer are mostly wanted one after the other.
class AttentionPooler {
 public:
  /// Reads heads of `source` and leaves as many as `grouped` has. Without a calibration the norms
  /// ahead of the attention stand for it. A refiner then has its say; it wants layers in the order
  /// in which the model computes. All references are kept.
  AttentionPooler(const ModelSpec& source, const ModelSpec& grouped, const Pooling& pooling,
                  std::shared_ptr<const Calibration> calibration, const Checkpoint& checkpoint,
                  std::shared_ptr<AttentionRefiner> refiner = nullptr)
      : source_(source),
        grouped_(grouped),
        pooling_(pooling),
        calibration_(std::move(calibration)),
        checkpoint_(checkpoint),
        refiner_(std::move(refiner)) {}

  /// Heads of one layer with fewer keys and values, valid until the next call. Throws kBadInput for
  /// NaN and infinities among them.
  const AttentionHeads& layer(AttentionRole role, std::size_t layer);

  /// Of all layers so far, in the order of roles and layers.
  std::vector<LayerReport> reports() const;

 private:
  InputMoments moments(AttentionRole role, std::size_t layer, InputSide side,
                       std::int64_t width) const;
  PooledAttention pool(AttentionRole role, std::size_t layer) const;

  using Place = std::pair<AttentionRole, std::size_t>;

  const ModelSpec& source_;
  const ModelSpec& grouped_;
  Pooling pooling_;
  std::shared_ptr<const Calibration> calibration_;
  const Checkpoint& checkpoint_;
  std::shared_ptr<AttentionRefiner> refiner_;
  std::optional<Place> last_;
  AttentionHeads heads_;
  std::map<Place, LayerReport> reports_;
};

}  // namespace regroup
