#include <array>
#include <cstdint>
#include <tuple>

#include <ATen/TensorOperators.h>
#include <ATen/ops/_scaled_dot_product_flash_attention.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_backward.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/logaddexp.h>
#include <torch/csrc/autograd/custom_function.h>

#include "uptrain/ops/attention.h"

namespace regroup {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// All queries and some of the keys: the earlier ones, or those of the same positions.
struct KeyRange {
  at::Tensor q, k, v, bias;
  bool causal;
};

struct Attended {
  at::Tensor output;   // [B, H, T, d]
  at::Tensor log_sum;  // of the exponentials of the scores, [B, H, T]
};

// The earlier keys, and those of the queries' positions. `all`: q, k, v and bias, which may be
// undefined.
std::array<KeyRange, 2> ranges_of(const variable_list& all) {
  const at::Tensor &q = all[0], &k = all[1], &v = all[2], &bias = all[3];
  const auto range = [&](std::int64_t first, std::int64_t count, bool causal) -> KeyRange {
    return {q, k.narrow(2, first, count), v.narrow(2, first, count),
            bias.defined() ? bias.narrow(3, first, count) : bias, causal};
  };
  const std::int64_t own = q.size(2), earlier = k.size(2) - own;
  return {range(0, earlier, /*causal=*/false), range(earlier, own, /*causal=*/true)};
}

Attended attend_range(const KeyRange& range, double scale) {
  if (range.q.is_cpu()) {
    const auto [output, log_sum] = at::_scaled_dot_product_flash_attention_for_cpu(
        range.q, range.k, range.v, /*dropout_p=*/0.0, range.causal, if_defined(range.bias), scale);
    return {output, log_sum};
  }
  const auto all =
      at::_scaled_dot_product_flash_attention(range.q, range.k, range.v, /*dropout_p=*/0.0,
                                              range.causal, /*return_debug_mask=*/false, scale);
  return {std::get<0>(all), std::get<1>(all)};
}

// The gradients of q, k and v. `whole`: the attention to all keys.
std::tuple<at::Tensor, at::Tensor, at::Tensor> differentiate_range(const KeyRange& range,
                                                                   const Attended& whole,
                                                                   const at::Tensor& outer,
                                                                   double scale) {
  if (range.q.is_cpu()) {
    return at::_scaled_dot_product_flash_attention_for_cpu_backward(
        outer, range.q, range.k, range.v, whole.output, whole.log_sum, /*dropout_p=*/0.0,
        range.causal, if_defined(range.bias), scale);
  }
  const at::Tensor none;  // lengths of packed sequences; without dropout no random state
  const at::Tensor unused = at::empty({0}, range.q.options().dtype(at::kLong));
  return at::_scaled_dot_product_flash_attention_backward(
      outer, range.q, range.k, range.v, whole.output, whole.log_sum, none, none, range.q.size(2),
      range.k.size(2), /*dropout_p=*/0.0, range.causal, unused, unused, scale);
}

// How products of queries and keys become scores.
struct Scores {
  double scale;
  at::Tensor bias;  // an argument of a node of the graph must be defined, a member need not
};

struct SuffixAttention : torch::autograd::Function<SuffixAttention> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& q, const at::Tensor& k,
                            const at::Tensor& v, const Scores& scores) {
    const auto& [scale, bias] = scores;
    const auto ranges = ranges_of({q, k, v, bias});
    const Attended earlier = attend_range(ranges[0], scale);
    const Attended own = attend_range(ranges[1], scale);
    const at::Tensor log_sum = at::logaddexp(earlier.log_sum, own.log_sum);
    const auto weighted = [&](const Attended& attended) {
      return attended.output * (attended.log_sum - log_sum).exp().unsqueeze(-1);
    };
    const at::Tensor output = (weighted(earlier) + weighted(own)).to(q.scalar_type());
    context->save_for_backward({q, k, v, bias, output, log_sum});
    context->saved_data["scale"] = scale;
    return output;
  }

  static variable_list backward(AutogradContext* context, const variable_list& outer) {
    const variable_list saved = context->get_saved_variables();
    const Attended whole = {saved[4], saved[5]};
    const double scale = context->saved_data["scale"].toDouble();
    const at::Tensor gradient = outer.front().contiguous();
    const auto ranges = ranges_of(saved);
    const auto [q_earlier, k_earlier, v_earlier] =
        differentiate_range(ranges[0], whole, gradient, scale);
    const auto [q_own, k_own, v_own] = differentiate_range(ranges[1], whole, gradient, scale);
    return {q_earlier + q_own, at::cat({k_earlier, k_own}, 2), at::cat({v_earlier, v_own}, 2),
            at::Tensor()};
  }
};

}  // namespace

at::Tensor attend_suffix(const Heads& heads, double scale, const at::Tensor& bias) {
  constexpr std::int64_t kAlignment = 8;  // of head dimensions in CUDA's kernel
  const std::int64_t width = heads.q.size(3);
  const std::int64_t missing = (kAlignment - width % kAlignment) % kAlignment;
  if (!heads.q.is_cpu() && missing > 0) {
    const auto wider = [&](const at::Tensor& x) { return at::constant_pad_nd(x, {0, missing}); };
    return attend_suffix({wider(heads.q), wider(heads.k), wider(heads.v)}, scale, bias)
        .narrow(3, 0, width);
  }
  return SuffixAttention::apply(heads.q, heads.k, heads.v, Scores{scale, bias});
}

}  // namespace regroup
