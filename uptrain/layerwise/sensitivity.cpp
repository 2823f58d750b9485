// Shapes: B windows of T tokens, D hidden size, V vocabulary.
#include "uptrain/layerwise/sensitivity.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include "converter/execute/execute_plan.h"
#include "converter/grouping/similar_grouping.h"
#include "converter/pooling/solvers/head_moments.h"
#include "formats/base/callback.h"
#include "formats/base/error.h"
#include "formats/base/interruption.h"
#include "formats/base/printable.h"
#include "uptrain/model/output_head.h"

namespace regroup {
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
      const HeadOrder& order = plans_[plan++]->order;
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

void check_can_measure(const ModelSpec& spec) {
  if (spec.has_encoder() || !spec.causal) {
    throw_usage("--kv-budget: {} has an encoder; only decoder-only models keep one cache",
                printable(spec.architecture));
  }
  if (spec.qk_norm == QkNorm::kPerHead || spec.qk_norm == QkNorm::kProjection) {
    throw_usage("--kv-budget: {} normalises keys with separate weights for each head",
                printable(spec.architecture));
  }
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

std::vector<Sensitivity> measure_sensitivity(const Model& source, const ConversionRequest& request,
                                             const TokenFile& data,
                                             const SensitivitySettings& settings,
                                             const std::function<void(std::size_t)>& progress,
                                             const std::atomic<bool>& stop) {
  const at::NoGradGuard no_gradients;
  const ModelSpec& spec = source.spec;
  check_can_measure(spec);
  data.check_vocabulary(spec.vocab_size);
  Poolers poolers(source, request, stop);
  LayerWalk walk(source, read_windows(data, settings.windows), settings.device);
  std::vector<Stream> streams;
  while (walk.next()) {
    for (Stream& stream : streams) {
      stream.hidden = run(walk.block(), spec, stream.hidden, walk, stop);
    }
    const std::size_t layer = walk.layer();
    if (spec.attention(AttentionRole::kSelf, layer).present()) {
      for (const Poolers::Pooled& pooled : poolers.pooled(layer, spec.kv_heads[layer])) {
        const Block changed = with_heads(walk.block(), pooled, settings.device);
        streams.push_back(
            {{layer, pooled.heads.kv_heads, 0.0}, run(changed, spec, walk.hidden(), walk, stop)});
      }
    }
    walk.run({}, stop);
    call_if_given(progress, layer + 1);
  }
  const OutputHead head(source, settings.device);
  std::vector<Sensitivity> measured;
  for (const Stream& stream : streams) {
    throw_if_stopped(stop, "interrupted; nothing was left behind");
    measured.push_back(stream.change);
    measured.back().divergence = divergence_of(head, walk.hidden(), stream.hidden);
  }
  return measured;
}

}  // namespace regroup
