#include <algorithm>
#include <cmath>
#include <cstdint>

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
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
struct Rows {
  const Number* x;       // [N, D]
  const Number* weight;  // [D]
  float* inverse;        // [N], 1 / sqrt(mean(x²) + epsilon)
  std::int64_t width;    // D
};

template <typename Number>
REGROUP_INLINE void normalise(const Rows<Number>& rows, Number* y, float epsilon,
                              std::int64_t begin, std::int64_t end) {
  for (std::int64_t row = begin; row < end; ++row) {
    const Number* x = rows.x + row * rows.width;
    float squares = 0.0F;
#pragma omp simd reduction(+ : squares)
    for (std::int64_t i = 0; i < rows.width; ++i) {
      squares += wide(x[i]) * wide(x[i]);
    }
    const float inverse = 1.0F / std::sqrt(squares / static_cast<float>(rows.width) + epsilon);
    Number* const to = y + row * rows.width;
#pragma omp simd
    for (std::int64_t i = 0; i < rows.width; ++i) {
      to[i] = narrow<Number>(wide(x[i]) * inverse * wide(rows.weight[i]));
    }
    rows.inverse[row] = inverse;
  }
}

// With n = x · inverse and h = outer · weight, the gradient by x is inverse · (h - n · mean(h ·
// n)). The gradient by the weight is the sum of outer · n over the rows.
template <typename Number>
REGROUP_INLINE void differentiate(const Rows<Number>& rows, const Number* outer, Number* by_x,
                                  float* by_weight, std::int64_t begin, std::int64_t end) {
  for (std::int64_t row = begin; row < end; ++row) {
    const Number* x = rows.x + row * rows.width;
    const Number* from = outer + row * rows.width;
    Number* const to = by_x + row * rows.width;
    const float inverse = rows.inverse[row];
    float along = 0.0F;
#pragma omp simd reduction(+ : along)
    for (std::int64_t i = 0; i < rows.width; ++i) {
      along += wide(from[i]) * wide(rows.weight[i]) * wide(x[i]);
    }
    const float share = along * inverse * inverse / static_cast<float>(rows.width);
#pragma omp simd
    for (std::int64_t i = 0; i < rows.width; ++i) {
      const float scaled = wide(from[i]) * inverse;
      to[i] = narrow<Number>(scaled * wide(rows.weight[i]) - wide(x[i]) * inverse * share);
      by_weight[i] += scaled * wide(x[i]);
    }
  }
}

REGROUP_VECTORISED void normalise_rows(const Rows<float>& rows, float* y, float epsilon,
                                       std::int64_t begin, std::int64_t end) {
  normalise(rows, y, epsilon, begin, end);
}

REGROUP_VECTORISED void normalise_rows(const Rows<c10::BFloat16>& rows, c10::BFloat16* y,
                                       float epsilon, std::int64_t begin, std::int64_t end) {
  normalise(rows, y, epsilon, begin, end);
}

REGROUP_VECTORISED void differentiate_rows(const Rows<float>& rows, const float* outer, float* by_x,
                                           float* by_weight, std::int64_t begin, std::int64_t end) {
  differentiate(rows, outer, by_x, by_weight, begin, end);
}

REGROUP_VECTORISED void differentiate_rows(const Rows<c10::BFloat16>& rows,
                                           const c10::BFloat16* outer, c10::BFloat16* by_x,
                                           float* by_weight, std::int64_t begin, std::int64_t end) {
  differentiate(rows, outer, by_x, by_weight, begin, end);
}

template <typename Number>
Rows<Number> rows_of(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& inverse) {
  return {x.const_data_ptr<Number>(), weight.const_data_ptr<Number>(),
          inverse.mutable_data_ptr<float>(), x.size(-1)};
}

template <typename Number>
void normalise_all(const at::Tensor& x, const at::Tensor& weight, double epsilon,
                   const at::Tensor& y, const at::Tensor& inverse) {
  const Rows<Number> rows = rows_of<Number>(x, weight, inverse);
  Number* const to = y.mutable_data_ptr<Number>();
  at::parallel_for(0, inverse.numel(), kRowsPerBlock, [&](std::int64_t begin, std::int64_t end) {
    normalise_rows(rows, to, static_cast<float>(epsilon), begin, end);
  });
}

// by_weight: zeros [blocks, D], which become one sum per block of rows.
template <typename Number>
void differentiate_all(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& inverse,
                       const at::Tensor& outer, const at::Tensor& by_x,
                       const at::Tensor& by_weight) {
  const Rows<Number> rows = rows_of<Number>(x, weight, inverse);
  const Number* const from = outer.const_data_ptr<Number>();
  Number* const to = by_x.mutable_data_ptr<Number>();
  float* const sums = by_weight.mutable_data_ptr<float>();
  at::parallel_for(0, by_weight.size(0), 1, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t block = first; block < last; ++block) {
      differentiate_rows(rows, from, to, sums + block * rows.width, block * kRowsPerBlock,
                         std::min((block + 1) * kRowsPerBlock, inverse.numel()));
    }
  });
}

const void* data_or_null(const at::Tensor& x) { return x.defined() ? x.const_data_ptr() : nullptr; }

// Results of the forward pass on a device.
struct DeviceNorm {
  at::Tensor sum;      // x + update; undefined without an update
  at::Tensor y;        // the norm
  at::Tensor inverse;  // fp32, one per row: 1 / sqrt(mean(x²) + epsilon)
};

// The norm of x, or of x + update if it is defined. Contiguous: x, update [..., D]; weight [D].
DeviceNorm normalise_on_device(const at::Tensor& x, const at::Tensor& update,
                               const at::Tensor& weight, double epsilon) {
  const std::int64_t width = x.size(-1);
  const std::int64_t rows = x.numel() / width;
  const DeviceNorm norm = {update.defined() ? at::empty_like(x) : at::Tensor(), at::empty_like(x),
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
  launch_kernel(&DeviceKernels::normalise, call, x);
  return norm;
}

// What the backward pass needs: what was normalised, and the two others.
struct SavedNorm {
  at::Tensor x, weight, inverse;
};

struct NormGradients {
  at::Tensor by_x, by_weight;
};

// The gradients for the gradient `outer` of y and, if defined, `outer_sum` of the sum, both
// contiguous. That of the weight only if `with_weight`.
NormGradients differentiate_norm_on_device(const SavedNorm& saved, const at::Tensor& outer,
                                           const at::Tensor& outer_sum, bool with_weight) {
  const std::int64_t width = saved.x.size(-1);
  const std::int64_t rows = saved.inverse.numel();
  const at::Tensor by_x = at::empty_like(saved.x);
  const at::Tensor by_weight =
      with_weight ? at::empty({kernels::norm_groups(rows, width), width}, saved.inverse.options())
                  : at::Tensor();
  const kernels::NormGradientCall call = {
      .type = number_type(saved.x),
      .x = saved.x.const_data_ptr(),
      .weight = saved.weight.const_data_ptr(),
      .inverse = saved.inverse.const_data_ptr<float>(),
      .outer = outer.const_data_ptr(),
      .outer_sum = data_or_null(outer_sum),
      .by_x = by_x.mutable_data_ptr(),
      .by_weight = with_weight ? by_weight.mutable_data_ptr<float>() : nullptr,
      .rows = rows,
      .width = width,
  };
  launch_kernel(&DeviceKernels::differentiate_norm, call, saved.x);
  return {by_x, with_weight ? by_weight.sum(0).to(saved.weight.scalar_type()) : at::Tensor()};
}

struct RmsNorm : torch::autograd::Function<RmsNorm> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input,
                            const at::Tensor& scale, double epsilon) {
    const at::Tensor x = input.contiguous();
    const at::Tensor weight = scale.contiguous();
    if (!x.is_cpu()) {
      const DeviceNorm norm = normalise_on_device(x, at::Tensor(), weight, epsilon);
      context->save_for_backward({x, weight, norm.inverse});
      return norm.y;
    }
    const at::Tensor y = at::empty_like(x);
    const at::Tensor inverse = at::empty({x.numel() / x.size(-1)}, x.options().dtype(at::kFloat));
    if (x.scalar_type() == at::kFloat) {
      normalise_all<float>(x, weight, epsilon, y, inverse);
    } else {
      normalise_all<c10::BFloat16>(x, weight, epsilon, y, inverse);
    }
    context->save_for_backward({x, weight, inverse});
    return y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& outer) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& x = saved[0];
    const at::Tensor& weight = saved[1];
    const at::Tensor& inverse = saved[2];
    const at::Tensor from = outer.front().contiguous();
    if (!x.is_cpu()) {
      const NormGradients found = differentiate_norm_on_device(
          {x, weight, inverse}, from, at::Tensor(), context->needs_input_grad(1));
      return {found.by_x, found.by_weight, at::Tensor()};
    }
    const at::Tensor by_x = at::empty_like(x);
    const std::int64_t blocks = (inverse.numel() + kRowsPerBlock - 1) / kRowsPerBlock;
    const at::Tensor by_weight = at::zeros({blocks, x.size(-1)}, inverse.options());
    if (x.scalar_type() == at::kFloat) {
      differentiate_all<float>(x, weight, inverse, from, by_x, by_weight);
    } else {
      differentiate_all<c10::BFloat16>(x, weight, inverse, from, by_x, by_weight);
    }
    return {by_x, by_weight.sum(0).to(weight.scalar_type()), at::Tensor()};
  }
};

// x + update and its norm, by a kernel of the device.
struct AddedRmsNorm : torch::autograd::Function<AddedRmsNorm> {
  static variable_list forward(AutogradContext* context, const at::Tensor& x,
                               const at::Tensor& update, const at::Tensor& scale, double epsilon) {
    const at::Tensor weight = scale.contiguous();
    const DeviceNorm norm =
        normalise_on_device(x.contiguous(), update.contiguous(), weight, epsilon);
    context->save_for_backward({norm.sum, weight, norm.inverse});
    context->set_materialize_grads(false);
    return {norm.sum, norm.y};
  }

  static variable_list backward(AutogradContext* context, const variable_list& outer) {
    const variable_list saved = context->get_saved_variables();
    if (!outer[1].defined()) {  // the norm was not used
      return {outer[0], outer[0], at::Tensor(), at::Tensor()};
    }
    const NormGradients found = differentiate_norm_on_device(
        {saved[0], saved[1], saved[2]}, outer[1].contiguous(),
        outer[0].defined() ? outer[0].contiguous() : at::Tensor(), context->needs_input_grad(2));
    return {found.by_x, found.by_x, found.by_weight, at::Tensor()};
  }
};

}  // namespace

bool can_fuse_rms_norm(const at::Tensor& x, const at::Tensor& weight) {
  return weight.defined() && has_fused_kernel(FusedKernel::kRmsNorm, x) &&
         weight.device() == x.device() && weight.scalar_type() == x.scalar_type() && x.numel() > 0;
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
