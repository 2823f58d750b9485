#include "converter/tensor_mapping/attention_mapping.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "converter/pooling/attention_pooler.h"
#include "formats/base/error.h"
#include "formats/base/printable.h"

namespace regroup {
namespace {

// The source of each feature of a rotating head. Empty if both specs pair features in the same way.
Rows rope_order(const ModelSpec& source, const ModelSpec& target) {
  const bool rotates =
      source.positions == PositionKind::kRope && target.positions == PositionKind::kRope;
  if (!rotates || source.rope.interleaved == target.rope.interleaved) {
    return {};
  }
  Rows order(static_cast<std::size_t>(source.head_dim));
  std::iota(order.begin(), order.end(), 0);
  const std::int64_t half = source.rope.rotary_dim / 2;
  for (std::int64_t i = 0; i < half; ++i) {
    const bool pairs = target.rope.interleaved;
    order[static_cast<std::size_t>(pairs ? 2 * i : i)] = pairs ? i : 2 * i;
    order[static_cast<std::size_t>(pairs ? 2 * i + 1 : i + half)] = pairs ? i + half : 2 * i + 1;
  }
  return order;
}

// Returns `all` reordered: place i holds element order[i].
template <typename T>
std::vector<T> taken(const std::vector<T>& all, const Rows& order) {
  std::vector<T> result;
  for (const std::int64_t i : order) {
    result.push_back(all[static_cast<std::size_t>(i)]);
  }
  return result;
}

}  // namespace

AttentionMapping::AttentionMapping(const TensorMapping& models, TensorStepBuilder& steps)
    : source_(models.source),
      grouped_(models.grouped),
      target_(models.target),
      checkpoint_(models.checkpoint),
      pooling_(models.pooling),
      order_(models.order),
      rope_order_(rope_order(source_, target_)),
      steps_(steps) {}

// Maps norms of queries or keys. Weights of the whole projection move with its heads. Weights that
// all heads share follow the order of features.
void AttentionMapping::norms(const std::vector<NormTensors>& from,
                             const std::vector<NormTensors>& to, const Features& heads) {
  for (std::size_t i = 0; i < std::min(from.size(), to.size()); ++i) {
    Features features = heads;
    if (source_.qk_norm != QkNorm::kProjection) {
      features = Features::all(source_.head_dim);
      features.row_order = heads.row_order;
    }
    steps_.vector(from[i].weight, to[i].weight, features);
    steps_.vector(from[i].bias, to[i].bias, features);
  }
}

// Moves the columns, one per query head, to the heads' new places.
void AttentionMapping::relative_bias(AttentionRole self, std::size_t layer) {
  const std::string& from = source_.stack(self)[layer].relative_bias;
  const std::string& to = target_.stack(self)[layer].relative_bias;
  if (from.empty() || to.empty()) {
    return;
  }
  const Rows heads = order_.heads(self, layer, source_.query_heads);
  const Rows places = HeadOrder().heads(self, layer, source_.query_heads);
  steps_.place(from, true, to, true, {heads, places, 1, std::ssize(heads), {}, {}});
}

// The output projection with its columns permuted to query heads `heads`.
void AttentionMapping::outputs(const AttentionLayout& from, const AttentionLayout& to,
                               const Rows& heads) {
  const std::int64_t d = source_.head_dim;
  const TensorInfo& tensor = checkpoint_.at(from.o.weight);
  if (is_block_type(tensor.dtype)) {
    throw_usage("tensor {} is {}: its heads can move only if --pool lowrank recomputes it",
                printable(tensor.name), name_of(tensor.dtype));
  }
  Features columns{{}, {}, d, d * std::ssize(heads), {}, {}};
  for (const std::int64_t head : heads) {
    columns.to.push_back(d * std::ssize(columns.from));
    columns.from.push_back(d * head);
  }
  steps_.place(from.o.weight, !from.o.input_major, to.o.weight, !to.o.input_major, columns);
  const std::int64_t outputs = tensor.shape.at(from.o.input_major ? 1 : 0);
  if (!to.o.bias.empty() && from.o.bias.empty()) {
    steps_.zeros(to.o.bias, tensor.dtype, outputs);
  } else {
    steps_.vector(from.o.bias, to.o.bias, Features::all(outputs));
  }
}

// Source and target features of each projection; pooled heads are given by name.
AttentionMapping::Projections AttentionMapping::projections(AttentionRole role,
                                                            std::size_t layer) const {
  const AttentionLayout& from = source_.attention(role, layer);
  const std::int64_t before = source_.kv_heads_of(role)[layer];
  const std::int64_t groups = grouped_.kv_heads_of(role)[layer];
  const std::int64_t after = target_.kv_heads_of(role)[layer];
  const std::int64_t d = source_.head_dim;
  const HeadFeatures old_heads = head_features(from.packing, source_.query_heads, before, d);
  const HeadFeatures new_heads =
      head_features(target_.attention(role, layer).packing, source_.query_heads, after, d);
  const Pooling named = pooling_.needs_solver() ? Pooling{} : pooling_;
  auto kv = heads_to_average(named, before, groups, after, stream_of(role, layer));
  const Rows kv_order = order_.heads(role, layer, before);
  for (std::vector<std::int64_t>& heads : kv) {
    heads = taken(kv_order, heads);
  }
  const Rows q_from = taken(old_heads.q, order_.heads(role, layer, source_.query_heads));
  return {.q = {q_from, new_heads.q, d, new_heads.q_total, {}, rope_order_},
          .k = {old_heads.k, new_heads.k, d, new_heads.k_total, kv, rope_order_},
          .v = {old_heads.v, new_heads.v, d, new_heads.v_total, kv, {}},
          .o = Features::all(checkpoint_.at(from.o.weight).shape.at(from.o.input_major ? 1 : 0))};
}

// The same for heads pooled by a method with a solver.
void AttentionMapping::take_pooled(Projections& parts, AttentionRole role,
                                   std::size_t layer) const {
  const std::int64_t groups = grouped_.kv_heads_of(role)[layer];
  const auto heads = static_cast<std::size_t>(groups);
  parts.k.mean_of = parts.v.mean_of =
      heads_of_groups(groups, groups, target_.kv_heads_of(role)[layer]);
  parts.k = parts.k.out_of({role, layer, AttentionPart::kKey}, heads);
  parts.v = parts.v.out_of({role, layer, AttentionPart::kValue}, heads);
  parts.q = parts.q.out_of({role, layer, AttentionPart::kQuery}, parts.q.from.size());
  parts.o = parts.o.out_of({role, layer, AttentionPart::kOutput}, 1);
}

void AttentionMapping::head_norms(AttentionRole role, std::size_t layer, const Projections& parts) {
  const AttentionLayout& from = source_.attention(role, layer);
  const AttentionLayout& to = target_.attention(role, layer);
  const std::int64_t kv_heads = source_.kv_heads_of(role)[layer];
  if (source_.qk_norm != QkNorm::kPerHead) {
    norms(from.q_norms, to.q_norms, parts.q);
    norms(from.k_norms, to.k_norms, parts.k);
  } else if (kv_heads == target_.kv_heads_of(role)[layer]) {
    norms(taken(from.q_norms, order_.heads(role, layer, source_.query_heads)), to.q_norms, parts.q);
    norms(taken(from.k_norms, order_.heads(role, layer, kv_heads)), to.k_norms, parts.k);
  } else {
    throw_bad_input(
        "{}: every key head has its own norm ({}); heads that are normalised differently have no "
        "mean that a loader could use",
        printable(source_.architecture), printable(from.k_norms.front().weight));
  }
}

void AttentionMapping::attention(AttentionRole role, std::size_t layer, const NormFold* fold) {
  const AttentionLayout& from = source_.attention(role, layer);
  const AttentionLayout& to = target_.attention(role, layer);
  if (!from.present()) {
    return;
  }
  Projections parts = projections(role, layer);
  head_norms(role, layer, parts);
  if (pooling_.needs_solver() &&
      source_.kv_heads_of(role)[layer] != grouped_.kv_heads_of(role)[layer]) {
    take_pooled(parts, role, layer);
  }
  steps_.linear(from.q, to.q, parts.q, fold);
  steps_.linear(from.k, to.k, parts.k, fold);
  steps_.linear(from.v, to.v, parts.v, fold);
  if (order_.moves(role, layer) && !parts.o.pooled) {
    outputs(from, to, order_.heads(role, layer, source_.query_heads));
  } else {
    steps_.linear(from.o, to.o, parts.o);
  }
}

}  // namespace regroup
