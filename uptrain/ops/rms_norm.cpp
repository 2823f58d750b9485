#include <algorithm>
#include <cmath>
#include <cstdint>

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include "converter/pooling/parallel_for.h"
#include "uptrain/ops/device_kernels.h"
#include "uptrain/ops/fused_ops.h"
#include "uptrain/ops/row_arithmetic.h"

namespace regroup {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// The number of rows whose contributions to the weight's gradient are summed sequentially. It is
// fixed, so that sums do not depend on the number of threads.
constexpr std::int64_t kRowsPerBlock = 64;

template <typename Number>
REGROUP_VECTORISED void normalise_rows(const kernels::NormCall& call, std::int64_t begin,
                                       std::int64_t end) {
  const Number* const weight = static_cast<const Number*>(call.weight);
  const std::int64_t width = call.width;
  for (std::int64_t row = begin; row < end; ++row) {
    const Number* const x = static_cast<const Number*>(call.x) + row * width;
    float squares = 0.0F;
#pragma omp simd reduction(+ : squares)
    for (std::int64_t i = 0; i < width; ++i) {
      squares += wide(x[i]) * wide(x[i]);
    }
    const float inverse = 1.0F / std::sqrt(squares / static_cast<float>(width) + call.epsilon);
    Number* const y = static_cast<Number*>(call.y) + row * width;
#pragma omp simd
    for (std::int64_t i = 0; i < width; ++i) {
      y[i] = narrow<Number>(wide(x[i]) * inverse * wide(weight[i]));
    }
    call.inverse[row] = inverse;
  }
}

// With n = x · inverse and h = outer · weight, the gradient by x is inverse · (h - n · mean(h ·
// n)). The gradient by the weight is the sum of outer · n over the rows, which is added to `sums`.
// The weight is read through the call: with a pointer of its own, GCC contracts other products and
// rounds by_x otherwise.
template <typename Number>
REGROUP_VECTORISED void differentiate_rows(const kernels::NormGradientCall& call, float* sums,
                                           std::int64_t begin, std::int64_t end) {
  const std::int64_t width = call.width;
  for (std::int64_t row = begin; row < end; ++row) {
    const Number* const x = static_cast<const Number*>(call.x) + row * width;
    const Number* const outer = static_cast<const Number*>(call.outer) + row * width;
    Number* const by_x = static_cast<Number*>(call.by_x) + row * width;
    const float inverse = call.inverse[row];
    float along = 0.0F;
#pragma omp simd reduction(+ : along)
    for (std::int64_t i = 0; i < width; ++i) {
      along += wide(outer[i]) * wide(static_cast<const Number*>(call.weight)[i]) * wide(x[i]);
    }
    const float share = along * inverse * inverse / static_cast<float>(width);
#pragma omp simd
    for (std::int64_t i = 0; i < width; ++i) {
      const float scaled = wide(outer[i]) * inverse;
      by_x[i] = narrow<Number>(scaled * wide(static_cast<const Number*>(call.weight)[i]) -
                               wide(x[i]) * inverse * share);
      sums[i] += scaled * wide(x[i]);
    }
  }
}

void normalise_on_cpu(const kernels::NormCall& call) {
  with_row_number(call.type, [&](auto number) {
    at::parallel_for(0, call.rows, kRowsPerBlock, [&](std::int64_t begin, std::int64_t end) {
      normalise_rows<decltype(number)>(call, begin, end);
    });
  });
}

std::int64_t blocks_of_rows(std::int64_t rows) { return (rows - 1) / kRowsPerBlock + 1; }

// Groups of rows are blocks here.
void differentiate_norm_on_cpu(const kernels::NormGradientCall& call) {
  with_row_number(call.type, [&](auto number) {
    at::parallel_for(0, blocks_of_rows(call.rows), 1, [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t block = first; block < last; ++block) {
        float* const sums = call.by_weight + block * call.width;
        std::fill_n(sums, call.width, 0.0F);
        differentiate_rows<decltype(number)>(call, sums, block * kRowsPerBlock,
                                             std::min((block + 1) * kRowsPerBlock, call.rows));
      }
    });
  });
}

const void* data_or_null(const at::Tensor& x) { return x.defined() ? x.const_data_ptr() : nullptr; }

// Results of the forward pass.
struct NormResults {
  at::Tensor sum;      // x + update; undefined without an update
  at::Tensor y;        // the norm
  at::Tensor inverse;  // fp32, one per row: 1 / sqrt(mean(x²) + epsilon)
};

// The norm of x, or of x + update if it is defined, which only devices add. Contiguous: x, update
// [..., D]; weight [D].
NormResults normalise(const at::Tensor& x, const at::Tensor& update, const at::Tensor& weight,
                      double epsilon) {
  const std::int64_t width = x.size(-1);
  const std::int64_t rows = x.numel() / width;
  const NormResults norm = {update.defined() ? at::empty_like(x) : at::Tensor(), at::empty_like(x),
                            at::empty({rows}, x.options().dtype(at::kFloat))};
  const kernels::NormCall call = {
      .type = number_type(x),
      .x = x.const_data_ptr(),
      .update = data_or_null(update),
      .sum = update.defined() ? norm.sum.mutable_data_ptr() : nullptr,
      .weight = weight.const_data_ptr(),
      .y = norm.y.mutable_data_ptr(),
      .inverse = norm.inverse.mutable_data_ptr<float>(),
      .rows = rows,
      .width = width,
      .epsilon = static_cast<float>(epsilon),
  };
  launch_kernel(&DeviceKernels::normalise, normalise_on_cpu, call, x);
  return norm;
}

struct NormGradients {
  at::Tensor by_x, by_weight;
};

// The gradients for the gradient `outer` of y and, if defined, `outer_sum` of the sum. `saved`:
// what was normalised, weight and inverse. On devices the weight gets a gradient only if
// `with_weight`.
NormGradients differentiate_norm(const variable_list& saved, const at::Tensor& outer,
                                 const at::Tensor& outer_sum, bool with_weight) {
  const at::Tensor &x = saved[0], &weight = saved[1], &inverse = saved[2];
  const at::Tensor by_y = outer.contiguous();
  const at::Tensor by_sum = outer_sum.defined() ? outer_sum.contiguous() : outer_sum;
  const std::int64_t width = x.size(-1);
  const std::int64_t rows = inverse.numel();
  const std::int64_t groups = x.is_cpu() ? blocks_of_rows(rows) : kernels::norm_groups(rows, width);
  const at::Tensor by_x = at::empty_like(x);
  const at::Tensor by_weight =
      with_weight || x.is_cpu() ? at::empty({groups, width}, inverse.options()) : at::Tensor();
  const kernels::NormGradientCall call = {
      .type = number_type(x),
      .x = x.const_data_ptr(),
      .weight = weight.const_data_ptr(),
      .inverse = inverse.const_data_ptr<float>(),
      .outer = by_y.const_data_ptr(),
      .outer_sum = data_or_null(by_sum),
      .by_x = by_x.mutable_data_ptr(),
      .by_weight = by_weight.defined() ? by_weight.mutable_data_ptr<float>() : nullptr,
      .rows = rows,
      .width = width,
  };
  launch_kernel(&DeviceKernels::differentiate_norm, differentiate_norm_on_cpu, call, x);
  return {by_x, by_weight.defined() ? by_weight.sum(0).to(weight.scalar_type()) : at::Tensor()};
}

struct RmsNorm : torch::autograd::Function<RmsNorm> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input,
                            const at::Tensor& scale, double epsilon) {
    const at::Tensor x = input.contiguous();
    const at::Tensor weight = scale.contiguous();
    const NormResults norm = normalise(x, at::Tensor(), weight, epsilon);
    context->save_for_backward({x, weight, norm.inverse});
    return norm.y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& outer) {
    const NormGradients found = differentiate_norm(context->get_saved_variables(), outer.front(),
                                                   at::Tensor(), context->needs_input_grad(1));
    return {found.by_x, found.by_weight, at::Tensor()};
  }
};

// x + update and its norm, by a kernel of the device.
struct AddedRmsNorm : torch::autograd::Function<AddedRmsNorm> {
  static variable_list forward(AutogradContext* context, const at::Tensor& x,
                               const at::Tensor& update, const at::Tensor& scale, double epsilon) {
    const at::Tensor weight = scale.contiguous();
    const NormResults norm = normalise(x.contiguous(), update.contiguous(), weight, epsilon);
    context->save_for_backward({norm.sum, weight, norm.inverse});
    context->set_materialize_grads(false);
    return {norm.sum, norm.y};
  }

  static variable_list backward(AutogradContext* context, const variable_list& outer) {
    if (!outer[1].defined()) {  // the norm was not used
      return {outer[0], outer[0], at::Tensor(), at::Tensor()};
    }
    const NormGradients found = differentiate_norm(context->get_saved_variables(), outer[1],
                                                   outer[0], context->needs_input_grad(2));
    return {found.by_x, found.by_x, found.by_weight, at::Tensor()};
  }
};

}  // namespace

bool can_fuse_rms_norm(const at::Tensor& x, const at::Tensor& weight) {
  return weight.defined() && has_fused_kernel(FusedKernel::kRmsNorm, x) &&
         weight.device() == x.device() && weight.scalar_type() == x.scalar_type() &&
         weight.numel() == x.size(-1) && x.numel() > 0;
}

at::Tensor fused_rms_norm(const at::Tensor& x, const at::Tensor& weight, double epsilon) {
  return RmsNorm::apply(x, weight, epsilon);
}

NormedSum fused_add_rms_norm(const at::Tensor& x, const at::Tensor& update,
                             const at::Tensor& weight, double epsilon) {
  if (x.is_cpu()) {
    const at::Tensor sum = x + update;
    return {sum, fused_rms_norm(sum, weight, epsilon)};
  }
  const variable_list both = AddedRmsNorm::apply(x, update, weight, epsilon);
  return {both[0], both[1]};
}

}  // namespace regroup
