#include <cstdint>

#include <torch/csrc/autograd/custom_function.h>

#include "converter/pooling/parallel_for.h"
#include "uptrain/ops/attention.h"
#include "uptrain/ops/fused_ops.h"
#include "uptrain/ops/row_arithmetic.h"

namespace regroup {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// The least number of positions per thread.
constexpr std::int64_t kPositionsPerThread = 16;

template <bool interleaved, typename Number>
REGROUP_INLINE void turn_head(const kernels::RotationCall& call, const Number* x, Number* y,
                              std::int64_t position) {
  const std::int64_t half = call.half;
  const Number* const cosine = static_cast<const Number*>(call.cosine) + position * half;
  const Number* const sine = static_cast<const Number*>(call.sine) + position * half;
  constexpr std::int64_t step = interleaved ? 2 : 1;
  const std::int64_t distance = interleaved ? 1 : half;
  const Number* const other = x + distance;
  Number* const other_to = y + distance;
  const float direction = call.inverse ? -1.0F : 1.0F;
#pragma omp simd
  for (std::int64_t i = 0; i < half; ++i) {
    const float one = wide(x[i * step]);
    const float two = wide(other[i * step]);
    const float c = wide(cosine[i]);
    const float s = wide(sine[i]) * direction;
    y[i * step] = narrow<Number>(one * c - two * s);
    other_to[i * step] = narrow<Number>(two * c + one * s);
  }
  for (std::int64_t i = 2 * half; i < call.width; ++i) {
    y[i] = x[i];
  }
}

// Rotates positions begin … end - 1, counted through all sequences.
template <bool interleaved, typename Number>
REGROUP_VECTORISED void turn_positions(const kernels::RotationCall& call, std::int64_t begin,
                                       std::int64_t end) {
  for (std::int64_t i = begin; i < end; ++i) {
    const std::int64_t sequence = i / call.length;
    const std::int64_t position = i % call.length;
    const Number* const x = static_cast<const Number*>(call.x) + sequence * call.x_strides[0] +
                            position * call.x_strides[2];
    Number* const y =
        static_cast<Number*>(call.y) + sequence * call.y_strides[0] + position * call.y_strides[2];
    for (std::int64_t head = 0; head < call.heads; ++head) {
      turn_head<interleaved>(call, x + head * call.x_strides[1], y + head * call.y_strides[1],
                             position);
    }
  }
}

void rotate_on_cpu(const kernels::RotationCall& call) {
  with_row_number(call.type, [&](auto number) {
    using Number = decltype(number);
    at::parallel_for(0, call.batch * call.length, kPositionsPerThread,
                     [&](std::int64_t begin, std::int64_t end) {
                       if (call.interleaved) {
                         turn_positions<true, Number>(call, begin, end);
                       } else {
                         turn_positions<false, Number>(call, begin, end);
                       }
                     });
  });
}

at::Tensor turned(const at::Tensor& heads, const RopeTable& table, bool back) {
  const at::Tensor x = heads.stride(-1) == 1 ? heads : heads.contiguous();
  const at::Tensor y = empty_heads(x);
  launch_kernel(&DeviceKernels::rotate, rotate_on_cpu, rotation_call(x, y, table, back), x);
  return y;
}

struct FusedRotation : torch::autograd::Function<FusedRotation> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x,
                            const RopeTable& angles) {
    const RopeTable table = {angles.cosine.contiguous(), angles.sine.contiguous(),
                             angles.interleaved};
    context->save_for_backward({table.cosine, table.sine});
    context->saved_data["interleaved"] = table.interleaved;
    return turned(x, table, /*back=*/false);
  }

  static variable_list backward(AutogradContext* context, const variable_list& outer) {
    const variable_list saved = context->get_saved_variables();
    const RopeTable table = {saved[0], saved[1], context->saved_data["interleaved"].toBool()};
    return {turned(outer.front(), table, /*back=*/true), at::Tensor()};
  }
};

}  // namespace

kernels::RotationCall rotation_call(const at::Tensor& x, const at::Tensor& y,
                                    const RopeTable& table, bool inverse) {
  return {
      .type = number_type(x),
      .x = x.const_data_ptr(),
      .y = y.mutable_data_ptr(),
      .x_strides = {x.stride(0), x.stride(1), x.stride(2)},
      .y_strides = {y.stride(0), y.stride(1), y.stride(2)},
      .cosine = table.cosine.const_data_ptr(),
      .sine = table.sine.const_data_ptr(),
      .batch = x.size(0),
      .heads = x.size(1),
      .length = x.size(2),
      .width = static_cast<int>(x.size(3)),
      .half = static_cast<int>(table.cosine.size(1)),
      .interleaved = table.interleaved,
      .inverse = inverse,
  };
}

bool can_fuse_rotation(const at::Tensor& x, const RopeTable& table) {
  const at::ScalarType type = x.scalar_type();
  return has_fused_kernel(FusedKernel::kRotation, x) && x.dim() == 4 && x.numel() > 0 &&
         table.cosine.device() == x.device() && table.cosine.scalar_type() == type &&
         table.sine.device() == x.device() && table.sine.scalar_type() == type;
}

at::Tensor fused_rotation(const at::Tensor& x, const RopeTable& table) {
  return FusedRotation::apply(x, table);
}

}  // namespace regroup
