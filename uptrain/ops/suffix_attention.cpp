#include "uptrain/ops/suffix_attention.h"

#include <cstdint>
#include <tuple>
#include <vector>

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

#include "uptrain/ops/optional_tensor.h"

namespace regroup {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// All queries and some of the keys: those before the queries, or those of the same positions.
struct KeyRange {
  at::Tensor q, k, v, bias;
  bool causal;
};

struct Attended {
  at::Tensor output;   // [B, H, T, d]
  at::Tensor log_sum;  // of the exponentials of the scores, [B, H, T]
};

KeyRange keys_before(const variable_list& all) {
  const std::int64_t before = all[1].size(2) - all[0].size(2);
  const auto seen = [&](const at::Tensor& x, std::int64_t dimension) {
    return x.defined() ? x.narrow(dimension, 0, before) : x;
  };
  return {all[0], seen(all[1], 2), seen(all[2], 2), seen(all[3], 3), false};
}

KeyRange keys_beside(const variable_list& all) {
  const std::int64_t count = all[0].size(2);
  const auto seen = [&](const at::Tensor& x, std::int64_t dimension) {
    return x.defined() ? x.narrow(dimension, x.size(dimension) - count, count) : x;
  };
  return {all[0], seen(all[1], 2), seen(all[2], 2), seen(all[3], 3), true};
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
    const variable_list all = {q, k, v, bias};
    const Attended before = attend_range(keys_before(all), scale);
    const Attended beside = attend_range(keys_beside(all), scale);
    const at::Tensor log_sum = at::logaddexp(before.log_sum, beside.log_sum);
    const auto part_of = [&](const Attended& attended) {
      return attended.output * (attended.log_sum - log_sum).exp().unsqueeze(-1);
    };
    const at::Tensor output = (part_of(before) + part_of(beside)).to(q.scalar_type());
    context->save_for_backward({q, k, v, bias, output, log_sum});
    context->saved_data["scale"] = scale;
    return output;
  }

  static variable_list backward(AutogradContext* context, const variable_list& outer) {
    const variable_list saved = context->get_saved_variables();
    const Attended whole = {saved[4], saved[5]};
    const double scale = context->saved_data["scale"].toDouble();
    const at::Tensor gradient = outer.front().contiguous();
    const auto [q_before, k_before, v_before] =
        differentiate_range(keys_before(saved), whole, gradient, scale);
    const auto [q_beside, k_beside, v_beside] =
        differentiate_range(keys_beside(saved), whole, gradient, scale);
    return {q_before + q_beside, at::cat({k_before, k_beside}, 2), at::cat({v_before, v_beside}, 2),
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
