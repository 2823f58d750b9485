#include "uptrain/ops/expert_routing.h"

#include <bit>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/argsort.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/topk.h>
#include <ATen/ops/zeros.h>

#include "formats/base/error.h"
#include "uptrain/ops/attention.h"

namespace regroup {

namespace {

constexpr int kRounds = 4;

// The finaliser of splitmix64 (Steele, Lea & Flood 2014).
std::uint64_t scramble(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15U;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31);
}

}  // namespace

std::uint64_t mix(std::uint64_t one, std::uint64_t other) {
  return scramble(scramble(one) ^ other);
}

Permutation::Permutation(std::uint64_t size, std::uint64_t seed, std::uint64_t stream)
    : size_(size),
      key_(mix(seed, stream)),
      half_bits_((static_cast<int>(std::bit_width(size)) + 1) / 2) {}

std::uint64_t Permutation::operator()(std::uint64_t index) const {
  do {
    index = encrypt(index);
  } while (index >= size_);
  return index;
}

std::uint64_t Permutation::encrypt(std::uint64_t value) const {
  const std::uint64_t mask = (std::uint64_t{1} << half_bits_) - 1;
  std::uint64_t left = value >> half_bits_;
  std::uint64_t right = value & mask;
  for (std::uint64_t round = 0; round < kRounds; ++round) {
    const std::uint64_t next = left ^ (mix(key_ + round, right) & mask);
    left = right;
    right = next;
  }
  return left << half_bits_ | right;
}

namespace {

// How many of the choices fall on each expert, int64 [E].
at::Tensor count_choices(const at::Tensor& choices, std::int64_t experts) {
  return at::zeros({experts}, choices.options())
      .scatter_add_(0, choices, at::ones(choices.sizes(), choices.options()));
}

// The position of each number 0 … n-1 in a permutation of them.
at::Tensor inverse_of(const at::Tensor& permutation) {
  return at::empty_like(permutation)
      .scatter_(0, permutation, at::arange(permutation.numel(), permutation.options()));
}

}  // namespace

RoutedTokens route(const at::Tensor& scores, const ExpertRouting& routing) {
  RoutedTokens routed;
  routed.probabilities = at::softmax(scores, -1, wide_type(scores));
  auto [weights, experts] = at::topk(routed.probabilities, routing.per_token, -1);
  if (routing.normalised) {
    weights = weights / weights.sum(-1, /*keepdim=*/true);
  }
  routed.experts = experts;
  routed.weights =
      (routing.scale == 1.0 ? weights : weights * routing.scale).to(scores.scalar_type());
  return routed;
}

at::Tensor mix_experts(const at::Tensor& x, const RoutedTokens& routed, std::int64_t experts,
                       const ExpertFunction& compute) {
  const std::int64_t each = routed.experts.size(1);
  const at::Tensor choices = routed.experts.flatten();  // [N·k]
  const at::Tensor counts = count_choices(choices, experts).to(at::kCPU);
  const at::Tensor order = at::argsort(choices, /*stable=*/true, 0, /*descending=*/false);
  const at::Tensor inputs = x.index_select(0, order.div(each, "floor"));  // [N·k, D]
  const auto* count = counts.const_data_ptr<std::int64_t>();
  std::vector<at::Tensor> outputs;
  std::int64_t first = 0;
  for (std::int64_t expert = 0; expert < experts; ++expert) {
    check_stop();
    // With gradients, an expert without tokens gets gradients of zero.
    if (count[expert] > 0 || at::GradMode::is_enabled()) {
      outputs.push_back(
          compute(static_cast<std::size_t>(expert), inputs.narrow(0, first, count[expert])));
    }
    first += count[expert];
  }
  const at::Tensor by_token = at::cat(outputs).index_select(0, inverse_of(order));  // [N·k, D]
  return (by_token.view({-1, each, x.size(1)}) * routed.weights.unsqueeze(-1)).sum(1);
}

RouterSums sum_per_sequence(const RoutedTokens& routed, std::int64_t sequences,
                            const at::Tensor& counted) {
  const std::int64_t experts = routed.probabilities.size(1);
  const at::Tensor choices = routed.experts.view({sequences, -1});  // [B, T·k]
  const at::TensorOptions options = routed.probabilities.options().requires_grad(false);
  at::Tensor probabilities = routed.probabilities.view({sequences, -1, experts});
  at::Tensor each = at::ones(choices.sizes(), options);
  if (counted.defined()) {
    const at::Tensor shares = counted.to(options.device()).to(probabilities.scalar_type());
    probabilities = probabilities * shares.unsqueeze(-1);
    each = shares.unsqueeze(-1).expand({-1, -1, routed.experts.size(1)}).flatten(1);
  }
  return {probabilities.sum(1),
          at::zeros({sequences, experts}, options).scatter_add_(1, choices, each)};
}

at::Tensor balance_loss(std::span<const RouterSums> layers, const ExpertRouting& routing) {
  const auto experts = static_cast<double>(routing.experts);
  const auto per_token = static_cast<double>(routing.per_token);
  if (routing.balance == ExpertRouting::Balance::kAllLayers) {
    at::Tensor probabilities, chosen;
    for (const RouterSums& layer : layers) {
      const at::Tensor mass = layer.probabilities.sum(0), choices = layer.chosen.sum(0);
      probabilities = probabilities.defined() ? probabilities + mass : mass;
      chosen = chosen.defined() ? chosen + choices : choices;
    }
    const at::Tensor tokens = (chosen.sum() / per_token).clamp_min(1.0);
    return (probabilities * chosen).sum() * experts / tokens.square();
  }
  const bool each_sequence = routing.balance == ExpertRouting::Balance::kEachSequence;
  at::Tensor sum;
  for (const RouterSums& layer : layers) {
    const at::Tensor mass = each_sequence ? layer.probabilities : layer.probabilities.sum(0);
    const at::Tensor choices = each_sequence ? layer.chosen : layer.chosen.sum(0);
    const at::Tensor tokens = (choices.sum(-1) / per_token).clamp_min(1.0);
    const at::Tensor shares = ((mass * choices).sum(-1) / tokens.square()).mean();
    sum = sum.defined() ? sum + shares : shares;
  }
  return sum * (experts / per_token);
}

}  // namespace regroup
