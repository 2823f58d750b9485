#include "uptrain/train/sensitivity.h"

#include <algorithm>
#include <limits>
#include <map>
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
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include "converter/convert/execute_plan.h"
#include "converter/convert/similar_grouping.h"
#include "converter/pooling/head_moments.h"
#include "formats/base/callback.h"
#include "formats/base/error.h"
#include "formats/base/printable.h"
#include "uptrain/model/language_model.h"

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
                             std::optional<std::int64_t> window, const ScoreSettings& settings) {
  const std::int64_t batch = heads.q.size(0), query_heads = heads.q.size(1);
  const std::int64_t length = heads.q.size(2);
  if (!sums_.defined()) {
    sums_ = at::zeros({query_heads, length}, heads.q.options().dtype(at::kDouble));
  }
  const double factor = scale_of(heads.q, settings.scale);
  const at::Tensor keys =
      heads.k.repeat_interleave(query_heads / heads.k.size(1), 1).transpose(2, 3) * factor;
  const at::Tensor positions = at::arange(length, keys.options().dtype(at::kLong));
  const std::int64_t rows =
      std::clamp<std::int64_t>(kMostScores / (batch * query_heads * length), 1, length);
  for (std::int64_t first = 0; first < length; first += rows) {
    check_stop();
    const std::int64_t count = std::min(rows, length - first);
    const at::Tensor distance =
        positions.narrow(0, first, count).unsqueeze(1) - positions;  // [rows, T]
    at::Tensor scores =
        softcapped(at::matmul(heads.q.narrow(2, first, count), keys), settings.softcap);
    if (mask.defined()) {
      scores = scores + mask.narrow(2, first, count);
    }
    const at::Tensor hidden =
        window ? (distance < 0).logical_or(distance >= *window) : distance < 0;
    scores = scores.masked_fill(hidden, -std::numeric_limits<double>::infinity());
    const at::Tensor weights = at::softmax(scores, -1).sum(0).to(at::kDouble);
    // Keys after the query have weight 0: distances begin at 0, in element T - 1 - first.
    sums_.narrow(1, 0, first + count)
        .add_(diagonal_sums(weights).narrow(1, length - 1 - first, first + count));
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
      plans_.push_back(std::make_unique<ConversionPlan>(plan_conversion(source, uniform)));
      poolers_.emplace(count, pooler_of(*plans_.back(), source.checkpoint, &stop));
    }
  }

  // The attention of one layer with fewer kv heads, and the order of its query heads.
  struct Pooled {
    AttentionHeads heads;
    std::vector<std::int64_t> query_order;
  };
  std::vector<Pooled> pooled(std::size_t layer, std::int64_t heads) {
    std::vector<Pooled> all;
    std::size_t plan = 0;
    for (auto& [count, pooler] : poolers_) {
      const HeadOrder& order = plans_[plan++]->request.order;
      if (count < heads && heads % count == 0) {
        const AttentionHeads& found = pooler.layer(AttentionRole::kSelf, layer);
        all.push_back({found, order.heads(AttentionRole::kSelf, layer, found.query_heads)});
      }
    }
    return all;
  }

 private:
  std::vector<std::unique_ptr<ConversionPlan>> plans_;  // in ascending order of kv heads
  std::map<std::int64_t, AttentionPooler> poolers_;
};

Linear linear_of(const DenseLinear& linear, c10::Device device) {
  const auto tensor = [&](const std::vector<double>& values, std::vector<std::int64_t> shape) {
    return tensor_of(values, std::move(shape), c10::kCPU).to(device, at::kFloat);
  };
  return {tensor(linear.weight, {linear.outputs, linear.inputs}),
          linear.bias.empty() ? at::Tensor() : tensor(linear.bias, {linear.outputs})};
}

// The block with other heads in its attention.
Block with_heads(const Block& block, const Poolers::Pooled& pooled, c10::Device device) {
  const AttentionHeads& heads = pooled.heads;
  Block changed = block;
  if (block.attention.alibi) {
    changed.attention.alibi = block.attention.alibi->in_order(
        at::tensor(at::ArrayRef<std::int64_t>(pooled.query_order)).to(device));
  }
  changed.attention.packing = Packing::kSeparate;
  changed.attention.q = linear_of(heads.q, device);
  changed.attention.k = linear_of(heads.k, device);
  changed.attention.v = linear_of(heads.v, device);
  changed.attention.o = linear_of(heads.o, device);
  changed.attention.kv_heads = heads.kv_heads;
  return changed;
}

// The hidden states of a text in the model with one layer changed.
struct Stream {
  Sensitivity change;
  Batches hidden;
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

double divergence_of(const OutputHead& head, const Batches& source, const Batches& changed) {
  const auto log_probabilities = [&](const at::Tensor& hidden) {  // [B, T, D] -> [B, T, V]
    return at::log_softmax(head.logits(hidden), -1);
  };
  at::Tensor sum = at::zeros({}, source.front().options().dtype(at::kDouble));
  std::int64_t tokens = 0;
  for (std::size_t i = 0; i < source.size(); ++i) {
    const at::Tensor expected = log_probabilities(source[i]);
    const at::Tensor found = log_probabilities(changed[i]);
    sum += (expected.exp() * (expected - found)).sum();
    tokens += expected.size(0) * expected.size(1);
  }
  return sum.item<double>() / static_cast<double>(tokens);
}

}  // namespace

void check_measurable(const ModelSpec& spec) {
  if (spec.has_encoder() || !spec.causal) {
    throw_usage("--kv-budget: {} has an encoder; only decoder-only models keep one cache",
                printable(spec.architecture));
  }
  if (spec.qk_norm == QkNorm::kPerHead || spec.qk_norm == QkNorm::kProjection) {
    throw_usage("--kv-budget: {} normalises keys with separate weights for each head",
                printable(spec.architecture));
  }
}

std::vector<Sensitivity> measure_sensitivity(const Model& source, const ConversionRequest& request,
                                             const TokenFile& data, const WindowSettings& windows,
                                             c10::Device device,
                                             const std::function<void(std::size_t)>& progress,
                                             const std::atomic<bool>& stop) {
  const at::NoGradGuard no_gradients;
  const ModelSpec& spec = source.spec;
  check_measurable(spec);
  data.check_vocabulary(spec.vocab_size);
  Poolers poolers(source, request, stop);
  LayerWalk walk(source, read_windows(data, windows), device);
  std::vector<Stream> streams;
  while (walk.next()) {
    for (Stream& stream : streams) {
      stream.hidden = run(walk.block(), spec, stream.hidden, walk, stop);
    }
    const std::size_t layer = walk.layer();
    if (spec.attention(AttentionRole::kSelf, layer).present()) {
      for (const Poolers::Pooled& pooled : poolers.pooled(layer, spec.kv_heads[layer])) {
        const Block changed = with_heads(walk.block(), pooled, device);
        streams.push_back(
            {{layer, pooled.heads.kv_heads, 0.0}, run(changed, spec, walk.hidden(), walk, stop)});
      }
    }
    walk.run({}, stop);
    call_if_given(progress, layer + 1);
  }
  const OutputHead head(source, device);
  std::vector<Sensitivity> measured;
  for (const Stream& stream : streams) {
    throw_if_stopped(stop, "interrupted; nothing was left behind");
    measured.push_back(stream.change);
    measured.back().divergence = divergence_of(head, walk.hidden(), stream.hidden);
  }
  return measured;
}

}  // namespace regroup
