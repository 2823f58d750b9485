// Which expert takes which token, and rows in their order.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include "formats/spec/model_spec.h"

namespace regroup {

// A pseudo-random permutation that needs no memory.

/// A bijection of [0, size) onto itself, a pure function of its two keys: a four-round Feistel
/// network over the next even number of bits, walked until it lands inside (Black & Rogaway,
/// "Ciphers with arbitrary finite domains", 2002).
class Permutation {
 public:
  /// `size` of at least 1.
  Permutation(std::uint64_t size, std::uint64_t seed, std::uint64_t stream);

  /// The image of `index`, which must be below size.
  std::uint64_t operator()(std::uint64_t index) const;

 private:
  std::uint64_t encrypt(std::uint64_t value) const;

  std::uint64_t size_;
  std::uint64_t key_;
  int half_bits_;
};

/// A well mixed 64-bit hash of two numbers (splitmix64's finaliser, twice).
std::uint64_t mix(std::uint64_t one, std::uint64_t other);

// Routing tokens to experts, and the load-balancing loss.
//
// Shapes: B sequences of T tokens, N = B·T, E experts, of which k compute each token.

/// The experts of N tokens.
struct RoutedTokens {
  at::Tensor probabilities;  ///< fp32 at least, [N, E]: the softmax of the router's scores
  at::Tensor experts;        ///< int64 [N, k]
  at::Tensor weights;        ///< [N, k], in the scores' dtype
};

/// scores: [N, E], the router's output.
RoutedTokens route(const at::Tensor& scores, const ExpertRouting& routing);

/// The computation of one expert: [n, D] -> [n, D]. n may be 0.
using ExpertFunction = std::function<at::Tensor(std::size_t expert, const at::Tensor& tokens)>;

/// The sum of each token's experts, weighted. x: [N, D] -> [N, D]. Each expert is called once with
/// its tokens, in ascending order of experts; without gradients, experts without tokens are not
/// called. On a device, the host waits once for the numbers of tokens.
at::Tensor mix_experts(const at::Tensor& x, const RoutedTokens& routed, std::int64_t experts,
                       const ExpertFunction& compute);

/// What the load-balancing loss needs of one layer, fp32 at least, [B, E] each.
struct RouterSums {
  at::Tensor probabilities;  ///< summed over the tokens of each sequence
  at::Tensor chosen;         ///< how many tokens chose each expert; no gradient
};

/// counted: bool [B, T], the tokens to sum over; undefined: all.
RouterSums sum_per_sequence(const RoutedTokens& routed, std::int64_t sequences,
                            const at::Tensor& counted = {});

/// The load-balancing loss without its factor. f is the number of choices of an expert divided by
/// the number of tokens, and P the mean of its probability:
///   kAllLayers: E · Σ f·P over the experts, f and P over the tokens of all layers. Fedus et al.,
///     Switch Transformers, https://arxiv.org/abs/2101.03961, equations 4 to 6, without 1/k, as in
///     transformers.
///   kEachLayer: E/k · Σ f·P, summed over layers. Dai et al., DeepSeekMoE,
///     https://arxiv.org/abs/2401.06066, equations 12 to 14.
///   kEachSequence: the same with f and P of each sequence, then the mean over sequences.
at::Tensor balance_loss(std::span<const RouterSums> layers, const ExpertRouting& routing);

}  // namespace regroup
