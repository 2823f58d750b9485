#include <cmath>
#include <cstdint>
#include <limits>
#include <span>

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include "converter/pooling/parallel_for.h"
#include "formats/base/error.h"
#include "uptrain/ops/device_kernels.h"
#include "uptrain/ops/fused_ops.h"
#include "uptrain/ops/row_arithmetic.h"

namespace regroup {
namespace {

template <typename Number>
struct LogitRows {
  Number* logits;               // [n, V], `stride` numbers from row to row
  const std::int64_t* targets;  // [n]
  float* losses;                // [n]
  std::int64_t width, stride;   // V
  float scale;                  // of the gradient
  bool with_gradient;
};

// log Σ exp of a row.
template <typename Number>
REGROUP_INLINE float log_sum_of(const Number* row, std::int64_t width) {
  float largest = -std::numeric_limits<float>::infinity();
#pragma omp simd reduction(max : largest)
  for (std::int64_t i = 0; i < width; ++i) {
    const float logit = wide(row[i]);
    largest = logit > largest ? logit : largest;
  }
  float sum = 0.0F;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < width; ++i) {
    sum += exponential(wide(row[i]) - largest);
  }
  return largest + std::log(sum);
}

template <typename Number>
REGROUP_INLINE void take_losses(const LogitRows<Number>& rows, std::int64_t begin,
                                std::int64_t end) {
  for (std::int64_t n = begin; n < end; ++n) {
    Number* const row = rows.logits + n * rows.stride;
    const std::int64_t target = rows.targets[n];
    const float log_sum = log_sum_of(row, rows.width);
    const float of_target = wide(row[target]) - log_sum;
    rows.losses[n] = -of_target;
    if (!rows.with_gradient) {
      continue;
    }
    const float scale = rows.scale;
#pragma omp simd
    for (std::int64_t i = 0; i < rows.width; ++i) {
      row[i] = narrow<Number>(exponential(wide(row[i]) - log_sum) * scale);
    }
    row[target] = narrow<Number>((exponential(of_target) - 1.0F) * scale);
  }
}

REGROUP_VECTORISED void take_row_losses(const LogitRows<float>& rows, std::int64_t begin,
                                        std::int64_t end) {
  take_losses(rows, begin, end);
}

REGROUP_VECTORISED void take_row_losses(const LogitRows<c10::BFloat16>& rows, std::int64_t begin,
                                        std::int64_t end) {
  take_losses(rows, begin, end);
}

template <typename Number>
void take_all_losses(const at::Tensor& logits, const at::Tensor& targets, const at::Tensor& losses,
                     double scale, bool with_gradient) {
  const LogitRows<Number> rows{logits.mutable_data_ptr<Number>(),
                               targets.const_data_ptr<std::int64_t>(),
                               losses.mutable_data_ptr<float>(),
                               logits.size(1),
                               logits.stride(0),
                               static_cast<float>(scale),
                               with_gradient};
  at::parallel_for(0, logits.size(0), 1, [&](std::int64_t begin, std::int64_t end) {
    take_row_losses(rows, begin, end);
  });
}

void take_losses_on_device(const at::Tensor& logits, const at::Tensor& targets,
                           const at::Tensor& losses, double scale, bool with_gradient) {
  const kernels::CrossEntropyCall call = {.type = number_type(logits),
                                          .logits = logits.mutable_data_ptr(),
                                          .targets = targets.const_data_ptr<std::int64_t>(),
                                          .losses = losses.mutable_data_ptr<float>(),
                                          .rows = logits.size(0),
                                          .width = logits.size(1),
                                          .stride = logits.stride(0),
                                          .scale = static_cast<float>(scale),
                                          .with_gradient = with_gradient};
  launch_kernel(&DeviceKernels::take_cross_entropy, call, logits);
}

void check_targets(const at::Tensor& targets, std::int64_t vocabulary) {
  const auto* const begin = targets.const_data_ptr<std::int64_t>();
  for (const std::int64_t target : std::span(begin, static_cast<std::size_t>(targets.numel()))) {
    if (target < 0 || target >= vocabulary) {
      throw_bad_input("target token {} is outside the vocabulary of {}", target, vocabulary);
    }
  }
}

}  // namespace

bool can_fuse_cross_entropy(const at::Tensor& logits) {
  return has_fused_kernel(FusedKernel::kCrossEntropy, logits) && logits.dim() == 2 &&
         logits.numel() > 0 && logits.stride(1) == 1;
}

void add_fused_cross_entropy(const at::Tensor& loss, const at::Tensor& logits,
                             const at::Tensor& targets, double scale, bool with_gradient) {
  TORCH_CHECK(targets.device() == logits.device(), "logits are on ", logits.device(),
              " and targets on ", targets.device());
  const at::Tensor wanted = targets.contiguous();
  const at::Tensor losses = at::empty({logits.size(0)}, loss.options());
  if (!logits.is_cpu()) {
    take_losses_on_device(logits, wanted, losses, scale, with_gradient);
    loss.add_(losses.sum(), scale);
    return;
  }
  check_targets(wanted, logits.size(1));
  if (logits.scalar_type() == at::kFloat) {
    take_all_losses<float>(logits, wanted, losses, scale, with_gradient);
  } else {
    take_all_losses<c10::BFloat16>(logits, wanted, losses, scale, with_gradient);
  }
  loss.add_(losses.sum(), scale);
}

}  // namespace regroup
