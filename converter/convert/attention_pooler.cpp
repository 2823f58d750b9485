#include "converter/convert/attention_pooler.h"

#include "formats/base/error.h"
#include "formats/base/printable.h"
#include "formats/tensors/checkpoint.h"

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

void check_can_pool(const ModelSpec& source, PoolMethod method) {
  if (!needs_solver(method)) {
    return;
  }
  if (source.clip_qkv) {
    throw_usage(
        "pooling method {}: {} clamps queries, keys and values (clip_qkv), which allows no change "
        "of basis; allowed are mean, first and random",
        name_of(method), printable(source.architecture));
  }
  if (!source.not_computable.empty()) {
    throw_usage(
        "pooling method {}: it is not known what {} computes with its heads ({}); allowed are "
        "mean, first and random",
        name_of(method), printable(source.architecture), printable(source.not_computable));
  }
}

InputMoments AttentionPooler::moments(AttentionRole role, std::size_t layer, InputSide side,
                                      std::int64_t width) const {
  return calibration_ ? calibration_->moments(role, layer, side, width)
                      : moments_after_norm(source_, role, layer, side, width, checkpoint_);
}

KeyDistances AttentionPooler::distances(AttentionRole role, std::size_t layer) const {
  return !has_distances(source_, role) ? KeyDistances{}
         : calibration_                ? calibration_->distances(role, layer, source_.query_heads)
                                       : usual_distances(source_);
}

AttentionHeads AttentionPooler::read(AttentionRole role, std::size_t layer) const {
  AttentionHeads heads = read_attention_heads(source_, role, layer, checkpoint_);
  const std::string faulty = nonfinite_tensor(heads, source_.attention(role, layer));
  if (!faulty.empty()) {
    throw_bad_input(
        "{}: NaN or infinity, which method {} cannot solve for; `regroup inspect --stats` counts "
        "them",
        place_of(checkpoint_, checkpoint_.at(faulty)), name_of(pooling_.method));
  }
  return heads;
}

PoolingTask AttentionPooler::task(AttentionRole role, std::size_t layer,
                                  const AttentionHeads& heads) const {
  return {pooling_.method,
          grouped_.kv_heads_of(role)[layer],
          key_basis(grouped_, role, layer),
          moments(role, layer, InputSide::kQueries, heads.q.inputs),
          moments(role, layer, InputSide::kKeysAndValues, heads.k.inputs),
          distances(role, layer),
          {},
          stop_,
          pooling_.device};
}

PooledAttention AttentionPooler::pool(AttentionRole role, std::size_t layer) const {
  AttentionHeads heads = read(role, layer);
  if (order_.moves(role, layer)) {
    heads = in_order(heads, order_.heads(role, layer, heads.kv_heads));
  }
  PoolingTask work = task(role, layer, heads);
  if (order_.moves(role, layer) && work.key_basis.rotates()) {
    work.distances = work.distances.in_order(order_.heads(role, layer, heads.query_heads));
  }
  if (pooling_.method == PoolMethod::kFirst || pooling_.method == PoolMethod::kRandom) {
    for (const auto& one : heads_to_average(pooling_, heads.kv_heads, work.groups, work.groups,
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
  const Place place{role, layer};
  if (last_ != place) {
    heads_ = {};  // frees one layer before the next is made
    PooledAttention pooled = pool(role, layer);
    heads_ = std::move(pooled.heads);
    LayerReport& report =
        reports_[place] = {role, layer, std::move(pooled.groups), calibration_ != nullptr, {}};
    if (refiner_) {
      report.refinement =
          refiner_->refine(role, layer, order_.heads(role, layer, heads_.query_heads), heads_);
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
