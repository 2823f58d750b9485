#include "uptrain/ops/loss.h"

#include <algorithm>
#include <limits>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_log_softmax.h>
#include <ATen/ops/_softmax.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include "formats/base/error.h"
#include "uptrain/ops/attention.h"
#include "uptrain/ops/device_kernels.h"
#include "uptrain/ops/fused_ops.h"

namespace regroup {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// The distillation term. There is none if the weight is 0.
struct Distillation {
  LmHeadInputs teacher;
  TopKLogits answers;  // replaces the teacher if it is defined
  DistillationSettings settings = {.weight = 0.0};
};

struct Request {
  Distillation distillation = {};
  bool hidden_gradient = false;
  bool head_gradient = false;
  std::optional<std::int64_t> rows = std::nullopt;  // of a chunk
};

// A loss and its gradients, summed over chunks of tokens.
struct ChunkedLoss {
  at::Tensor loss;             // scalar
  at::Tensor hidden_gradient;  // [N, D], undefined unless requested
  at::Tensor head_gradient;    // [V, D], likewise
};

// The functions below add a term to `loss`. They return its gradient with respect to the logits if
// that is requested.

// scale · cross entropy.
at::Tensor add_cross_entropy(const at::Tensor& loss, const at::Tensor& logits,
                             const at::Tensor& targets, double scale, bool with_gradient) {
  const at::Tensor index = targets.unsqueeze(1);          // [n, 1]
  at::Tensor log_p = at::_log_softmax(logits, 1, false);  // [n, V]
  loss.sub_(log_p.gather(1, index).sum(), scale);
  if (!with_gradient) {
    return {};
  }
  // scale · (p - onehot(target))
  at::Tensor gradient = log_p.exp_();
  gradient.scatter_add_(1, index, at::empty_like(index, gradient.options()).fill_(-1.0));
  return gradient.mul_(scale);
}

// scale · τ² · divergence.
at::Tensor add_divergence(const at::Tensor& loss, const at::Tensor& logits,
                          const at::Tensor& teacher_logits, double temperature, double scale,
                          bool with_gradient) {
  at::Tensor log_s = at::_log_softmax(logits / temperature, 1, false);  // [n, V]
  const at::Tensor log_t = at::_log_softmax(teacher_logits / temperature, 1, false);
  const at::Tensor t = log_t.exp();
  loss.add_((t * (log_t - log_s)).sum(), scale * temperature * temperature);
  if (!with_gradient) {
    return {};
  }
  return log_s.exp_().sub_(t).mul_(scale * temperature);  // scale · τ · (s - t)
}

// The same over the teacher's k most likely tokens and the sum of all others.
at::Tensor add_coarse_divergence(const at::Tensor& loss, const at::Tensor& logits,
                                 const TopKLogits& teacher, double temperature, double scale,
                                 bool with_gradient) {
  const std::int64_t k = teacher.ids.size(1);
  const at::Tensor log_s = at::_log_softmax(logits / temperature, 1, false);  // [n, V]
  const at::Tensor others = log_s.scatter(1, teacher.ids, -std::numeric_limits<double>::infinity());
  const at::Tensor coarse =
      at::cat({log_s.gather(1, teacher.ids), others.logsumexp(1, true)}, 1);  // [n, k + 1]
  const at::Tensor log_t =
      at::_log_softmax(teacher.log_probabilities.to(loss.scalar_type()), 1, false);
  const at::Tensor t = log_t.exp();
  // Impossible events contribute 0, although their logarithms are infinite.
  loss.add_(at::where(t > 0, t * (log_t - coarse), 0.0).sum(), scale * temperature * temperature);
  if (!with_gradient) {
    return {};
  }
  // scale · τ · (s - t) for the k tokens. The others share their common t in proportion to s.
  at::Tensor gradient = log_s.exp();
  if (k < logits.size(1)) {
    gradient.sub_(at::_softmax(others, 1, false) * t.narrow(1, k, 1));
  }
  gradient.scatter_add_(1, teacher.ids, t.narrow(1, 0, k).neg());
  return gradient.mul_(scale * temperature);
}

// The logits of all rows, rounded before they are capped.
at::Tensor capped_logits(const LmHeadInputs& inputs, at::ScalarType type) {
  return softcapped(at::linear(inputs.hidden, inputs.head).to(type), inputs.softcap);
}

at::Tensor add_distillation(const at::Tensor& loss, const at::Tensor& logits,
                            const Distillation& distillation, double scale, bool with_gradient) {
  const double temperature = distillation.settings.temperature;
  if (distillation.answers.ids.defined()) {
    return add_coarse_divergence(loss, logits, distillation.answers, temperature, scale,
                                 with_gradient);
  }
  const at::Tensor teacher = capped_logits(distillation.teacher, logits.scalar_type());
  return add_divergence(loss, logits, teacher, temperature, scale, with_gradient);
}

// All losses of n tokens.
at::Tensor add_losses(const at::Tensor& loss, const LmHeadInputs& student,
                      const at::Tensor& targets, const Distillation& distillation, double scale,
                      bool with_gradient) {
  const double weight = distillation.settings.weight;
  at::Tensor logits = at::linear(student.hidden, student.head);
  if (weight == 0.0 && !student.softcap && can_fuse_cross_entropy(logits)) {
    add_fused_cross_entropy(loss, logits, targets, scale, with_gradient);
    return with_gradient ? logits : at::Tensor();
  }
  logits = softcapped(logits.to(loss.scalar_type()), student.softcap);
  at::Tensor gradient;
  if (weight < 1.0) {
    gradient = add_cross_entropy(loss, logits, targets, scale * (1.0 - weight), with_gradient);
  }
  if (weight > 0.0) {
    const at::Tensor more =
        add_distillation(loss, logits, distillation, scale * weight, with_gradient);
    gradient = gradient.defined() ? gradient.add_(more) : more;
  }
  if (student.softcap && gradient.defined()) {
    gradient.mul_(1.0 - (logits / *student.softcap).square());  // the slope of tanh
  }
  return gradient;
}

void add_chunk(ChunkedLoss& sum, const LmHeadInputs& student, const at::Tensor& targets,
               const Distillation& distillation, double scale, at::Tensor hidden_gradient) {
  const bool with_gradient = hidden_gradient.defined() || sum.head_gradient.defined();
  at::Tensor gradient = add_losses(sum.loss, student, targets, distillation, scale, with_gradient);
  if (!with_gradient) {
    return;
  }
  const at::Tensor& head = student.head;
  gradient = gradient.to(head.scalar_type());
  if (hidden_gradient.defined()) {
    at::mm_out(hidden_gradient, gradient, head);
  }
  if (!sum.head_gradient.defined()) {
    return;
  }
  if (sum.head_gradient.scalar_type() == head.scalar_type()) {
    sum.head_gradient.addmm_(gradient.t(), student.hidden);
  } else {
    sum.head_gradient.add_(at::mm(gradient.t(), student.hidden));
  }
}

// Rows begin … begin + count - 1.
LmHeadInputs rows_of(const LmHeadInputs& inputs, std::int64_t begin, std::int64_t count) {
  return {inputs.hidden.defined() ? inputs.hidden.narrow(0, begin, count) : at::Tensor(),
          inputs.head, inputs.softcap};
}

Distillation rows_of(const Distillation& distillation, std::int64_t begin, std::int64_t count) {
  Distillation part = distillation;
  part.teacher = rows_of(distillation.teacher, begin, count);
  if (distillation.answers.ids.defined()) {
    part.answers = {distillation.answers.ids.narrow(0, begin, count),
                    distillation.answers.log_probabilities.narrow(0, begin, count)};
  }
  return part;
}

ChunkedLoss compute(const LmHeadInputs& student, const at::Tensor& targets,
                    const Request& request) {
  const auto wide = student.hidden.options().dtype(wide_type(student.hidden));
  ChunkedLoss sum{at::zeros({}, wide), {}, {}};
  if (request.hidden_gradient) {
    sum.hidden_gradient = at::empty_like(student.hidden);
  }
  if (request.head_gradient) {
    sum.head_gradient = at::zeros(student.head.sizes(), wide);
  }
  const std::int64_t tokens = student.hidden.size(0);
  const bool in_place = request.distillation.settings.weight == 0.0 && !student.softcap &&
                        has_fused_kernel(FusedKernel::kCrossEntropy, student.head);
  const std::int64_t step = request.rows.value_or(
      default_loss_rows(student.head.size(0), student.head.is_cpu(), in_place));
  const double scale = 1.0 / static_cast<double>(tokens);
  for (std::int64_t begin = 0; begin < tokens; begin += step) {
    check_stop();
    const std::int64_t count = std::min(step, tokens - begin);
    add_chunk(sum, rows_of(student, begin, count), targets.narrow(0, begin, count),
              rows_of(request.distillation, begin, count), scale,
              request.hidden_gradient ? sum.hidden_gradient.narrow(0, begin, count) : at::Tensor());
  }
  return sum;
}

struct ChunkedLossFunction : torch::autograd::Function<ChunkedLossFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& hidden,
                            const at::Tensor& head, std::optional<double> softcap,
                            const at::Tensor& targets, const Request& request) {
    ChunkedLoss sum = compute({hidden, head, softcap}, targets, request);
    if (sum.head_gradient.defined()) {
      sum.head_gradient = sum.head_gradient.to(head.scalar_type());
    }
    context->save_for_backward({sum.hidden_gradient, sum.head_gradient});
    return sum.loss;
  }

  static variable_list backward(AutogradContext* context, const variable_list& outer) {
    variable_list gradients = context->get_saved_variables();
    for (at::Tensor& gradient : gradients) {
      if (gradient.defined()) {
        // With a dimension, the outer gradient keeps its type: in bf16 a third would scale all
        // gradients by its rounding.
        at::Tensor scaled = at::empty_like(gradient);
        gradient = at::mul_out(scaled, gradient, outer.front().view({1}));
      }
    }
    return {gradients[0], gradients[1], at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

at::Tensor loss_of(const LmHeadInputs& student, const at::Tensor& targets, Request request) {
  if (at::GradMode::is_enabled()) {
    request.hidden_gradient = student.hidden.requires_grad();
    request.head_gradient = student.head.requires_grad();
  }
  if (request.hidden_gradient || request.head_gradient) {
    return ChunkedLossFunction::apply(student.hidden, student.head, student.softcap, targets,
                                      request);
  }
  return compute(student, targets, request).loss;
}

}  // namespace

std::int64_t default_loss_rows(std::int64_t vocab_size, bool on_cpu, bool in_place) {
  constexpr std::int64_t kLogits = 16 << 20;
  constexpr std::int64_t kLogitsOfDevice = 512 << 20;
  if (on_cpu) {
    return std::max<std::int64_t>(1, kLogits / vocab_size);
  }
  return in_place ? std::clamp<std::int64_t>(kLogitsOfDevice / vocab_size, 2048, 8192)
                  : std::max<std::int64_t>(2048, kLogits / vocab_size);
}

at::Tensor logits_of(const LmHeadInputs& inputs, std::int64_t begin, std::int64_t count) {
  return capped_logits(rows_of(inputs, begin, count), wide_type(inputs.hidden));
}

at::Tensor next_token_loss(const LmHeadInputs& inputs, const at::Tensor& targets,
                           std::optional<std::int64_t> rows) {
  return loss_of(inputs, targets, {.rows = rows});
}

at::Tensor distillation_loss(const LmHeadInputs& student, const at::Tensor& targets,
                             const LmHeadInputs& teacher, const DistillationSettings& settings,
                             std::optional<std::int64_t> rows) {
  const LmHeadInputs frozen{teacher.hidden.detach(), teacher.head.detach(), teacher.softcap};
  return loss_of(student, targets, {.distillation = {frozen, {}, settings}, .rows = rows});
}

at::Tensor distillation_loss(const LmHeadInputs& student, const at::Tensor& targets,
                             const TopKLogits& teacher, const DistillationSettings& settings,
                             std::optional<std::int64_t> rows) {
  return loss_of(student, targets, {.distillation = {{}, teacher, settings}, .rows = rows});
}

}  // namespace regroup
