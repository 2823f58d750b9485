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
REGROUP_VECTORISED void take_row_losses(const kernels::CrossEntropyCall& call, std::int64_t begin,
                                        std::int64_t end) {
  const std::int64_t width = call.width;
  const float scale = call.scale;
  for (std::int64_t n = begin; n < end; ++n) {
    Number* const row = static_cast<Number*>(call.logits) + n * call.stride;
    const std::int64_t target = call.targets[n];
    const float log_sum = log_sum_of(row, width);
    const float of_target = wide(row[target]) - log_sum;
    call.losses[n] = -of_target;
    if (!call.with_gradient) {
      continue;
    }
#pragma omp simd
    for (std::int64_t i = 0; i < width; ++i) {
      row[i] = narrow<Number>(exponential(wide(row[i]) - log_sum) * scale);
    }
    row[target] = narrow<Number>((exponential(of_target) - 1.0F) * scale);
  }
}

void check_targets(const kernels::CrossEntropyCall& call) {
  for (const std::int64_t target : std::span(call.targets, static_cast<std::size_t>(call.rows))) {
    if (target < 0 || target >= call.width) {
      throw_bad_input("target token {} is outside the vocabulary of {}", target, call.width);
    }
  }
}

void take_losses_on_cpu(const kernels::CrossEntropyCall& call) {
  check_targets(call);
  with_row_number(call.type, [&](auto number) {
    at::parallel_for(0, call.rows, 1, [&](std::int64_t begin, std::int64_t end) {
      take_row_losses<decltype(number)>(call, begin, end);
    });
  });
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
  const kernels::CrossEntropyCall call = {.type = number_type(logits),
                                          .logits = logits.mutable_data_ptr(),
                                          .targets = wanted.const_data_ptr<std::int64_t>(),
                                          .losses = losses.mutable_data_ptr<float>(),
                                          .rows = logits.size(0),
                                          .width = logits.size(1),
                                          .stride = logits.stride(0),
                                          .scale = static_cast<float>(scale),
                                          .with_gradient = with_gradient};
  launch_kernel(&DeviceKernels::take_cross_entropy, take_losses_on_cpu, call, logits);
  loss.add_(losses.sum(), scale);
}

}  // namespace regroup
