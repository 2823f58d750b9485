#include "converter/convert/attention_pooler.h"

#include "converter/convert/conversion_plan.h"
#include "formats/base/error.h"

namespace regroup {

namespace {

double energy_kept(const LayerReport& layer, double GroupReport::* kept,
                   double GroupReport::* share) {
  double lost = 0.0;
  for (const GroupReport& group : layer.groups) {
    lost += group.*share * (1.0 - group.*kept);
  }
  return 1.0 - lost;
}

}  // namespace

double keys_kept(const LayerReport& layer) {
  return energy_kept(layer, &GroupReport::key_energy, &GroupReport::key_share);
}

double values_kept(const LayerReport& layer) {
  return energy_kept(layer, &GroupReport::value_energy, &GroupReport::value_share);
}

RecordedLayer measurements_of(const LayerReport& layer) {
  RecordedLayer found{.attention = std::string(name_of(layer.role)), .layer = layer.layer};
  if (!layer.groups.empty() && layer.over_text) {
    found.key_energy = keys_kept(layer);
    found.value_energy = values_kept(layer);
  }
  if (layer.refinement) {
    found.error_before = layer.refinement->error_before;
    found.error_after = layer.refinement->error_after;
    found.learning_rate = layer.refinement->learning_rate;
  }
  return found;
}

std::uint64_t stream_of(AttentionRole role, std::size_t layer) {
  return 3 * static_cast<std::uint64_t>(layer) + static_cast<std::uint64_t>(role);
}

InputMoments AttentionPooler::moments(AttentionRole role, std::size_t layer, InputSide side,
                                      std::int64_t width) const {
  const auto& calibration = plan_.request.calibration;
  return calibration ? calibration->moments(role, layer, side, width)
                     : moments_after_norm(plan_.spec, role, layer, side, width, checkpoint_);
}

KeyDistances AttentionPooler::distances(AttentionRole role, std::size_t layer) const {
  if (!has_distances(plan_.spec, role, layer)) {
    return {};
  }
  const bool both_sides = role == AttentionRole::kEncoder || !plan_.spec.causal;
  const auto& calibration = plan_.request.calibration;
  KeyDistances found = calibration ? calibration->distances(role, layer, plan_.spec.query_heads)
                                   : usual_distances(plan_.spec, both_sides);
  found.both_sides = both_sides;
  return found;
}

AttentionHeads AttentionPooler::read(AttentionRole role, std::size_t layer) const {
  AttentionHeads heads = read_attention_heads(plan_.spec, role, layer, checkpoint_);
  const std::string faulty = nonfinite_tensor(heads, plan_.spec.attention(role, layer));
  if (!faulty.empty()) {
    throw_bad_input(
        "{}: NaN or infinity, which method {} cannot solve for; `regroup inspect --stats` counts "
        "them",
        place_of(checkpoint_, checkpoint_.at(faulty)), name_of(plan_.request.pooling.method));
  }
  return heads;
}

PoolingTask AttentionPooler::task(AttentionRole role, std::size_t layer,
                                  const AttentionHeads& heads) const {
  const PoolMethod method = plan_.request.pooling.method;
  return {method,
          plan_.grouped.kv_heads_of(role)[layer],
          (needs_solver(method) ? solved_basis : key_basis)(plan_.grouped, role, layer),
          moments(role, layer, InputSide::kQueries, heads.q.inputs),
          moments(role, layer, InputSide::kKeysAndValues, heads.k.inputs),
          distances(role, layer),
          {},
          stop_,
          plan_.request.pooling.device};
}

PooledAttention AttentionPooler::pool(AttentionRole role, std::size_t layer) const {
  const HeadOrder& order = plan_.request.order;
  AttentionHeads heads = read(role, layer);
  if (order.moves(role, layer)) {
    heads = in_order(std::move(heads), order.heads(role, layer, heads.kv_heads));
  }
  PoolingTask work = task(role, layer, heads);
  if (order.moves(role, layer) && work.key_basis.rotates()) {
    work.distances = work.distances.in_order(order.heads(role, layer, heads.query_heads));
  }
  const Pooling& pooling = plan_.request.pooling;
  if (pooling.method == PoolMethod::kFirst || pooling.method == PoolMethod::kRandom) {
    for (const auto& one : heads_to_average(pooling, heads.kv_heads, work.groups, work.groups,
                                            stream_of(role, layer))) {
      work.chosen.push_back(one.front());
    }
  }
  return pool_attention(heads, work);
}

SimilarHeads AttentionPooler::similar_heads(AttentionRole role, std::size_t layer) const {
  const AttentionHeads heads = read(role, layer);
  return find_similar_heads(heads, task(role, layer, heads));
}

std::vector<double> AttentionPooler::losses(AttentionRole role, std::size_t layer,
                                            const std::vector<HeadGroup>& groups) const {
  const AttentionHeads heads = read(role, layer);
  return losses_of_groups(heads, task(role, layer, heads), groups);
}

const AttentionHeads& AttentionPooler::layer(AttentionRole role, std::size_t layer) {
  const HeadOrder::Place place{role, layer};
  if (last_ != place) {
    heads_ = {};  // frees one layer before the next is made
    PooledAttention pooled = pool(role, layer);
    heads_ = std::move(pooled.heads);
    LayerReport& report = reports_[place] = {
        role, layer, std::move(pooled.groups), plan_.request.calibration != nullptr, {}};
    if (refines_ && plan_.request.refiner) {
      report.refinement = plan_.request.refiner->refine(
          role, layer, plan_.request.order.heads(role, layer, heads_.query_heads), heads_);
    }
    last_ = place;
  }
  return heads_;
}

std::vector<LayerReport> AttentionPooler::reports() const {
  std::vector<LayerReport> all;
  for (const auto& [place, report] : reports_) {
    all.push_back(report);
  }
  return all;
}

}  // namespace regroup
