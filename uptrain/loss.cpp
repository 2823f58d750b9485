#include "uptrain/loss.h"

#include <algorithm>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_log_softmax.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

namespace regroup {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::ScalarType wide_type(at::ScalarType type) {
  return type == at::kDouble ? at::kDouble : at::kFloat;
}

// Loss and gradients of one scalar, summed up over chunks of tokens.
struct ChunkedLoss {
  at::Tensor loss;             // scalar
  at::Tensor hidden_gradient;  // [N, D], undefined unless wanted
  at::Tensor head_gradient;    // [V, D], likewise
};

void add_chunk(ChunkedLoss& sum, const at::Tensor& hidden, const at::Tensor& head,
               const at::Tensor& targets, double scale, at::Tensor hidden_gradient) {
  const at::ScalarType wide = sum.loss.scalar_type();
  const at::Tensor index = targets.unsqueeze(1);                                     // [n, 1]
  at::Tensor log_p = at::_log_softmax(at::linear(hidden, head).to(wide), 1, false);  // [n, V]
  sum.loss.sub_(log_p.gather(1, index).sum(), scale);
  if (!hidden_gradient.defined()) {
    return;
  }
  // d loss / d logits = scale · (p - onehot(target))
  at::Tensor gradient = log_p.exp_();
  gradient.scatter_add_(1, index, at::empty_like(index, gradient.options()).fill_(-1.0));
  gradient = gradient.mul_(scale).to(head.scalar_type());
  at::mm_out(hidden_gradient, gradient, head);
  if (sum.head_gradient.scalar_type() == head.scalar_type()) {
    sum.head_gradient.addmm_(gradient.t(), hidden);
  } else {
    sum.head_gradient.add_(at::mm(gradient.t(), hidden));
  }
}

ChunkedLoss compute(const at::Tensor& hidden, const at::Tensor& head, const at::Tensor& targets,
                    bool with_gradients, std::int64_t logits_per_chunk) {
  const auto wide = hidden.options().dtype(wide_type(hidden.scalar_type()));
  ChunkedLoss sum{at::zeros({}, wide), {}, {}};
  if (with_gradients) {
    sum.hidden_gradient = at::empty_like(hidden);
    sum.head_gradient = at::zeros(head.sizes(), wide);
  }
  const std::int64_t tokens = hidden.size(0);
  const std::int64_t step = std::max<std::int64_t>(1, logits_per_chunk / head.size(0));
  const double scale = 1.0 / static_cast<double>(tokens);
  for (std::int64_t begin = 0; begin < tokens; begin += step) {
    const std::int64_t count = std::min(step, tokens - begin);
    add_chunk(sum, hidden.narrow(0, begin, count), head, targets.narrow(0, begin, count), scale,
              with_gradients ? sum.hidden_gradient.narrow(0, begin, count) : at::Tensor());
  }
  return sum;
}

struct ChunkedCrossEntropy : torch::autograd::Function<ChunkedCrossEntropy> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& hidden,
                            const at::Tensor& head, const at::Tensor& targets,
                            std::int64_t logits_per_chunk) {
    const ChunkedLoss sum = compute(hidden, head, targets, true, logits_per_chunk);
    context->save_for_backward({sum.hidden_gradient, sum.head_gradient.to(head.scalar_type())});
    return sum.loss;
  }

  static variable_list backward(AutogradContext* context, const variable_list& outer) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor factor = outer.front().to(saved.front().scalar_type());
    return {saved[0] * factor, saved[1] * factor, at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor next_token_loss(const at::Tensor& hidden, const at::Tensor& head,
                           const at::Tensor& targets, std::int64_t logits_per_chunk) {
  if (at::GradMode::is_enabled() && (hidden.requires_grad() || head.requires_grad())) {
    return ChunkedCrossEntropy::apply(hidden, head, targets, logits_per_chunk);
  }
  return compute(hidden, head, targets, false, logits_per_chunk).loss;
}

}  // namespace regroup
