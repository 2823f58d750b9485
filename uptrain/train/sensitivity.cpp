#include "uptrain/train/sensitivity.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <set>
#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/zeros.h>

#include "converter/convert/execute_plan.h"
#include "converter/convert/similar_grouping.h"
#include "formats/base/callback.h"
#include "formats/base/error.h"
#include "formats/base/printable.h"
#include "uptrain/model/language_model.h"
#include "uptrain/ops/loss.h"

namespace regroup {

namespace {

constexpr std::int64_t kMostScores = 1 << 24;  // computed at a time

// Sums along diagonals: element k of the result adds weights[:, i, T - 1 - (k - i)], so that k is
// i - j + T - 1 for row i and column j. weights: [H, R, T], result: [H, R + T - 1].
at::Tensor diagonal_sums(const at::Tensor& weights) {
  const std::int64_t heads = weights.size(0), rows = weights.size(1), length = weights.size(2);
  // A row of R + T elements, read as one of R + T - 1, begins one element further left.
  const at::Tensor wide = at::constant_pad_nd(weights.flip(2), {0, rows});
  return wide.flatten(1)
      .narrow(1, 0, rows * (rows + length - 1))
      .view({heads, rows, rows + length - 1})
      .sum(1);
}

}  // namespace

void AttentionDistances::add(const Heads& heads, const at::Tensor& mask,
                             std::optional<std::int64_t> window, const ScoreSettings& settings,
                             bool causal) {
  const at::Tensor queries = heads.q.to(at::kFloat);
  const std::int64_t batch = queries.size(0), query_heads = queries.size(1);
  const std::int64_t length = queries.size(2);
  if (!sums_.defined()) {
    sums_ = at::zeros({query_heads, length}, queries.options().dtype(at::kDouble));
  }
  const double factor = scale_of(queries, settings.scale);
  const at::Tensor keys =
      heads.k.to(at::kFloat).repeat_interleave(query_heads / heads.k.size(1), 1).transpose(2, 3) *
      factor;
  const at::Tensor positions = at::arange(length, keys.options().dtype(at::kLong));
  const std::int64_t rows =
      std::clamp<std::int64_t>(kMostScores / (batch * query_heads * length), 1, length);
  for (std::int64_t first = 0; first < length; first += rows) {
    check_stop();
    const std::int64_t count = std::min(rows, length - first);
    const at::Tensor distance =
        positions.narrow(0, first, count).unsqueeze(1) - positions;  // [rows, T]
    at::Tensor scores =
        softcapped(at::matmul(queries.narrow(2, first, count), keys), settings.softcap);
    if (mask.defined()) {
      scores = scores + mask.narrow(2, first, count);
    }
    at::Tensor hidden = distance < (causal ? 0 : -length);
    if (window) {
      hidden = hidden.logical_or(distance.abs() >= *window);
    }
    scores = scores.masked_fill(hidden, -std::numeric_limits<double>::infinity());
    const at::Tensor weights = at::softmax(scores, -1).sum(0).to(at::kDouble);
    // Distance 0 is in element T - 1 - first; keys after the query are before it.
    const at::Tensor sums = diagonal_sums(weights);
    const std::int64_t after = length - 1 - first;
    sums_.narrow(1, 0, first + count).add_(sums.narrow(1, after, first + count));
    if (!causal) {
      sums_.narrow(1, 1, after).add_(sums.narrow(1, 0, after).flip(1));
    }
  }
}

at::Tensor AttentionDistances::shares() const {
  const at::Tensor kept = sums_.narrow(1, 0, std::min(most_, sums_.size(1)));
  return kept / kept.sum(1, true);
}

// Shapes: B windows of T tokens, D hidden size, V vocabulary.

namespace {

// One pooler of the same model for each number of kv heads.
class Poolers {
 public:
  Poolers(const Model& source, const ConversionRequest& request, const std::atomic<bool>& stop) {
    std::set<std::int64_t> counts;
    for (const std::int64_t heads : source.spec.kv_heads) {
      for (std::int64_t count = 1; count < heads; ++count) {
        if (heads % count == 0) {
          counts.insert(count);
        }
      }
    }
    for (const std::int64_t count : counts) {
      ConversionRequest uniform = request;
      uniform.refiner = nullptr;
      uniform.positions = PositionChange::kKeep;  // those of the block that the heads are put into
      uniform.kv_heads.clear();
      for (const std::int64_t heads : source.spec.kv_heads) {
        uniform.kv_heads.push_back(heads % count == 0 ? std::min(count, heads) : heads);
      }
      if (request.grouping == "similar") {
        uniform.order =
            find_similar_grouping(
                plan_conversion(source, uniform), source.checkpoint, [](std::int64_t) {}, stop)
                .order;
      }
      auto plan = std::make_unique<const ConversionPlan>(plan_conversion(source, uniform));
      AttentionPooler pooler(*plan, source.checkpoint, &stop);
      poolers_.push_back({count, std::move(plan), std::move(pooler)});
    }
  }

  // Calls `visit` with the heads of one layer pooled to each number below `kv_heads`, and the order
  // of their query heads.
  template <typename Visit>
  void for_each_pooled(std::size_t layer, std::int64_t kv_heads, Visit visit) {
    for (auto& [count, plan, pooler] : poolers_) {
      if (count < kv_heads && kv_heads % count == 0) {
        const AttentionHeads& heads = pooler.layer(AttentionRole::kSelf, layer);
        visit(heads, plan->request.order.heads(AttentionRole::kSelf, layer, heads.query_heads));
      }
    }
  }

 private:
  struct Pooler {
    std::int64_t kv_heads = 0;
    std::unique_ptr<const ConversionPlan> plan;  // the pooler refers to it
    AttentionPooler pooler;
  };
  std::vector<Pooler> poolers_;
};

Batches run(const Block& block, const ModelSpec& spec, const Batches& hidden, const LayerWalk& walk,
            const std::atomic<bool>& stop) {
  Batches result;
  for (std::size_t i = 0; i < hidden.size(); ++i) {
    throw_if_stopped(stop, "interrupted; nothing was left behind");
    result.push_back(run_block(block, spec, hidden[i], walk.pass(i)));
  }
  return result;
}

// Sets the divergence of each change from the source. `changed`: the last hidden states with it.
void add_divergences(const OutputHead& head, const Batches& source,
                     const std::vector<Batches>& changed, std::vector<Sensitivity>& changes,
                     const std::function<void()>& batch_done, const std::atomic<bool>& stop) {
  const auto log_probabilities = [&](const at::Tensor& hidden) {  // [B, T, D] -> [B·T, V]
    return at::log_softmax(
        logits_of(head.lm_head_inputs(hidden), 0, hidden.size(0) * hidden.size(1)), 1);
  };
  double tokens = 0.0;
  for (std::size_t i = 0; i < source.size(); ++i) {
    const at::Tensor expected = log_probabilities(source[i]), shares = expected.exp();
    for (std::size_t change = 0; change < changes.size(); ++change) {
      throw_if_stopped(stop, "interrupted; nothing was left behind");
      changes[change].divergence +=
          (shares * (expected - log_probabilities(changed[change][i]))).sum().item<double>();
    }
    tokens += static_cast<double>(expected.size(0));
    batch_done();
  }
  for (Sensitivity& change : changes) {
    change.divergence /= tokens;
  }
}

}  // namespace

void check_measurable(const ModelSpec& spec) {
  if (spec.has_encoder() || !spec.causal) {
    throw_usage("--kv-budget: {} has an encoder; only decoder-only models keep one cache",
                printable(spec.architecture));
  }
  if (spec.qk_norm == QkNorm::kPerHead) {
    throw_usage("--kv-budget: {} normalises keys with separate weights for each head",
                printable(spec.architecture));
  }
}

std::vector<Sensitivity> measure_sensitivity(const Model& source, const ConversionRequest& request,
                                             const TokenFile& data, const WindowSettings& windows,
                                             c10::Device device,
                                             const std::function<void(std::size_t)>& progress,
                                             const std::atomic<bool>& stop, at::ScalarType type) {
  const at::NoGradGuard no_gradients;
  const ModelSpec& spec = source.spec;
  check_measurable(spec);
  data.check_vocabulary(spec.vocab_size);
  Poolers poolers(source, request, stop);
  LayerWalk walk(source, read_windows(data, windows), device, type);
  std::vector<Sensitivity> measured;
  std::vector<Batches> hidden;  // of the text, in the model with each change
  std::size_t done = 0;
  while (walk.next()) {
    for (Batches& changed : hidden) {
      changed = run(walk.block(), spec, changed, walk, stop);
    }
    const std::size_t layer = walk.layer();
    if (spec.attention(AttentionRole::kSelf, layer).present()) {
      poolers.for_each_pooled(
          layer, spec.kv_heads[layer],
          [&](const AttentionHeads& heads, const std::vector<std::int64_t>& query_order) {
            Block changed = walk.block();
            changed.attention = with_heads(changed.attention, heads, query_order);
            measured.push_back({layer, heads.kv_heads, 0.0});
            hidden.push_back(run(changed, spec, walk.hidden(), walk, stop));
          });
    }
    walk.run({}, stop);
    call_if_given(progress, ++done);
  }
  add_divergences(
      OutputHead(source, device, type), walk.hidden(), hidden, measured,
      [&] { call_if_given(progress, ++done); }, stop);
  return measured;
}

}  // namespace regroup
