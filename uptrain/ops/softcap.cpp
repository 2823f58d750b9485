#include <algorithm>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include "formats/base/error.h"
#include "uptrain/ops/attention.h"

namespace regroup {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr std::int64_t kScoresInBlock = 1 << 24;  // computed at a time

// Some of the queries, and the keys that they may see.
struct QueryBlock {
  std::int64_t first = 0, count = 0;  // queries
  std::int64_t position = 0;          // of the first one, counted in keys
  std::int64_t first_key = 0, key_count = 0;
};

std::vector<QueryBlock> blocks_of(const Heads& heads, const SoftcapAttention& attention) {
  const std::int64_t queries = heads.q.size(2), keys = heads.k.size(2);
  const std::int64_t widest =
      attention.window ? std::min(keys, 2 * std::max<std::int64_t>(*attention.window, 64)) : keys;
  std::int64_t rows = std::clamp<std::int64_t>(
      kScoresInBlock / (heads.q.size(0) * heads.q.size(1) * widest), 1, queries);
  if (attention.window) {
    rows = std::min(rows, std::max<std::int64_t>(*attention.window, 64));
  }
  std::vector<QueryBlock> blocks;
  for (std::int64_t first = 0; first < queries; first += rows) {
    QueryBlock block{first, std::min(rows, queries - first), 0, 0, keys};
    if (attention.causal) {
      block.position = keys - queries + first;
      const std::int64_t before = attention.window.value_or(block.position + 1) - 1;
      block.first_key = std::max<std::int64_t>(0, block.position - before);
      block.key_count = block.position + block.count - block.first_key;
    }
    blocks.push_back(block);
  }
  return blocks;
}

// The additive mask of a block, [1, 1, count, keys]; undefined if all keys are seen.
at::Tensor mask_of(const QueryBlock& block, const SoftcapAttention& attention,
                   const at::Tensor& q) {
  if (!attention.causal) {
    return attention.mask.defined() ? attention.mask.narrow(2, block.first, block.count)
                                    : at::Tensor();
  }
  const at::TensorOptions whole = q.options().dtype(at::kLong).requires_grad(false);
  const at::Tensor distance =
      at::arange(block.position, block.position + block.count, whole).unsqueeze(1) -
      at::arange(block.first_key, block.first_key + block.key_count, whole);
  at::Tensor hidden = distance < 0;
  if (attention.window) {
    hidden = hidden.logical_or(distance >= *attention.window);
  }
  return hiding_mask(hidden, q.options().dtype(at::kFloat).requires_grad(false));
}

// What a block computes. The query heads of a group are rows of one matrix, n of them.
struct BlockScores {
  at::Tensor rows;     // [B, G, n·count, d]
  at::Tensor k, v;     // [B, G, keys, d]
  at::Tensor tanh;     // of scaled scores / cap, [B, G, n·count, keys]
  at::Tensor weights;  // [B, G, n·count, keys]
};

BlockScores scores_of(const QueryBlock& block, const Heads& heads,
                      const SoftcapAttention& attention) {
  const std::int64_t groups = heads.k.size(1);
  BlockScores scores;
  scores.rows = fold_queries(heads.q.narrow(2, block.first, block.count), groups);
  scores.k = heads.k.narrow(2, block.first_key, block.key_count);
  scores.v = heads.v.narrow(2, block.first_key, block.key_count);
  scores.tanh = at::matmul(scores.rows, scores.k.transpose(2, 3))
                    .to(wide_type(heads.q))
                    .mul_(*attention.scale / attention.cap)
                    .tanh_();
  at::Tensor capped = scores.tanh * attention.cap;
  const at::Tensor mask = mask_of(block, attention, heads.q);
  if (mask.defined()) {
    capped.add_(fold_mask(mask, heads.q.size(1), groups));
  }
  scores.weights = at::softmax(capped, -1);
  return scores;
}

at::Tensor capped_forward(const Heads& heads, const SoftcapAttention& attention) {
  std::vector<at::Tensor> outputs;
  for (const QueryBlock& block : blocks_of(heads, attention)) {
    check_stop();
    const BlockScores scores = scores_of(block, heads, attention);
    const at::Tensor mixed = at::matmul(scores.weights.to(heads.v.scalar_type()), scores.v);
    outputs.push_back(
        mixed.reshape({heads.q.size(0), heads.q.size(1), block.count, heads.v.size(3)}));
  }
  return at::cat(outputs, 2);
}

// Adds the gradients of one block. With weights P of scores s = cap · tanh(scale · q kᵀ / cap):
// ∂v = Pᵀ ∂o, ∂s = P (∂o vᵀ - Σ P ∂o vᵀ), ∂(q kᵀ) = scale (1 - tanh²) ∂s.
void add_gradients(const QueryBlock& block, const Heads& heads, const SoftcapAttention& attention,
                   const at::Tensor& outer, const Heads& gradients) {
  const BlockScores scores = scores_of(block, heads, attention);
  const at::ScalarType type = heads.q.scalar_type();
  const at::Tensor of_output =
      fold_queries(outer.narrow(2, block.first, block.count), heads.k.size(1));
  const at::Tensor of_weights =
      at::matmul(of_output, scores.v.transpose(2, 3)).to(scores.weights.scalar_type());
  const at::Tensor sums = (scores.weights * of_weights).sum(-1, /*keepdim=*/true);
  const at::Tensor of_products = (scores.weights * (of_weights - sums))
                                     .mul_(1.0 - scores.tanh.square())
                                     .mul_(*attention.scale)
                                     .to(type);
  const auto add = [&](const at::Tensor& sum, const at::Tensor& part) {
    sum.narrow(2, block.first_key, block.key_count).add_(part);
  };
  add(gradients.k, at::matmul(of_products.transpose(2, 3), scores.rows));
  add(gradients.v, at::matmul(scores.weights.to(type).transpose(2, 3), of_output));
  gradients.q.narrow(2, block.first, block.count)
      .copy_(at::matmul(of_products, scores.k)
                 .reshape({heads.q.size(0), heads.q.size(1), block.count, heads.q.size(3)}));
}

struct SoftcapAttentionFunction : torch::autograd::Function<SoftcapAttentionFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& q, const at::Tensor& k,
                            const at::Tensor& v, const SoftcapAttention& attention) {
    context->save_for_backward({q, k, v, attention.mask});
    context->saved_data["cap"] = attention.cap;
    context->saved_data["scale"] = *attention.scale;
    context->saved_data["causal"] = attention.causal;
    context->saved_data["window"] = attention.window;
    return capped_forward({q, k, v}, attention);
  }

  static variable_list backward(AutogradContext* context, const variable_list& outer) {
    const variable_list saved = context->get_saved_variables();
    const Heads heads{saved[0], saved[1], saved[2]};
    const SoftcapAttention attention{.cap = context->saved_data["cap"].toDouble(),
                                     .scale = context->saved_data["scale"].toDouble(),
                                     .causal = context->saved_data["causal"].toBool(),
                                     .window = context->saved_data["window"].toOptional<int64_t>(),
                                     .mask = saved[3]};
    // Blocks share keys, so their gradients are summed.
    const auto sums = [&](const at::Tensor& x) {
      return at::zeros(x.sizes(), x.options().dtype(wide_type(x)));
    };
    const Heads gradients{at::zeros_like(heads.q), sums(heads.k), sums(heads.v)};
    for (const QueryBlock& block : blocks_of(heads, attention)) {
      add_gradients(block, heads, attention, outer.front(), gradients);
    }
    const at::ScalarType type = heads.k.scalar_type();
    return {gradients.q, gradients.k.to(type), gradients.v.to(type), at::Tensor()};
  }
};

}  // namespace

at::Tensor softcapped(const at::Tensor& x, std::optional<double> cap) {
  return cap ? at::tanh(x / *cap) * *cap : x;
}

at::Tensor attend_softcapped(const Heads& heads, const SoftcapAttention& attention) {
  SoftcapAttention scaled = attention;
  scaled.scale = scale_of(heads.q, attention.scale);
  return SoftcapAttentionFunction::apply(heads.q, heads.k, heads.v, scaled);
}

}  // namespace regroup
