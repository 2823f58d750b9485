#include <cstdint>

#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/custom_function.h>

#include "converter/pooling/parallel_for.h"
#include "uptrain/ops/fused_ops.h"
#include "uptrain/ops/row_arithmetic.h"

namespace regroup {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// The least number of positions per thread.
constexpr std::int64_t kPositionsPerThread = 16;

template <typename Number>
struct HeadsInMemory {
  Number* data;
  std::int64_t batch, head, position;  // strides
};

template <typename Number>
struct Rotation {
  HeadsInMemory<const Number> from;
  HeadsInMemory<Number> to;
  const Number* cosine;  // [T, half]
  const Number* sine;
  std::int64_t heads, length, width, half;
  bool interleaved;
  float direction;  // -1 for the inverse rotation
};

template <bool interleaved, typename Number>
REGROUP_INLINE void turn_head(const Rotation<Number>& rotation, const Number* x, Number* y,
                              std::int64_t position) {
  const Number* const cosine = rotation.cosine + position * rotation.half;
  const Number* const sine = rotation.sine + position * rotation.half;
  constexpr std::int64_t step = interleaved ? 2 : 1;
  const std::int64_t distance = interleaved ? 1 : rotation.half;
  const Number* const other = x + distance;
  Number* const other_to = y + distance;
  const float direction = rotation.direction;
#pragma omp simd
  for (std::int64_t i = 0; i < rotation.half; ++i) {
    const float one = wide(x[i * step]);
    const float two = wide(other[i * step]);
    const float c = wide(cosine[i]);
    const float s = wide(sine[i]) * direction;
    y[i * step] = narrow<Number>(one * c - two * s);
    other_to[i * step] = narrow<Number>(two * c + one * s);
  }
  for (std::int64_t i = 2 * rotation.half; i < rotation.width; ++i) {
    y[i] = x[i];
  }
}

// Rotates positions begin … end - 1, counted through all sequences.
template <bool interleaved, typename Number>
REGROUP_INLINE void turn_as(const Rotation<Number>& rotation, std::int64_t begin,
                            std::int64_t end) {
  for (std::int64_t i = begin; i < end; ++i) {
    const std::int64_t sequence = i / rotation.length;
    const std::int64_t position = i % rotation.length;
    const Number* const x =
        rotation.from.data + sequence * rotation.from.batch + position * rotation.from.position;
    Number* const y =
        rotation.to.data + sequence * rotation.to.batch + position * rotation.to.position;
    for (std::int64_t head = 0; head < rotation.heads; ++head) {
      turn_head<interleaved>(rotation, x + head * rotation.from.head, y + head * rotation.to.head,
                             position);
    }
  }
}

template <typename Number>
REGROUP_INLINE void turn(const Rotation<Number>& rotation, std::int64_t begin, std::int64_t end) {
  if (rotation.interleaved) {
    turn_as<true>(rotation, begin, end);
  } else {
    turn_as<false>(rotation, begin, end);
  }
}

REGROUP_VECTORISED void turn_positions(const Rotation<float>& rotation, std::int64_t begin,
                                       std::int64_t end) {
  turn(rotation, begin, end);
}

REGROUP_VECTORISED void turn_positions(const Rotation<c10::BFloat16>& rotation, std::int64_t begin,
                                       std::int64_t end) {
  turn(rotation, begin, end);
}

template <typename Number>
void turn_all(const at::Tensor& x, const at::Tensor& y, const RopeTable& table, bool back) {
  const std::int64_t half = table.cosine.size(1);
  const Rotation<Number> rotation{
      {x.const_data_ptr<Number>(), x.stride(0), x.stride(1), x.stride(2)},
      {y.mutable_data_ptr<Number>(), y.stride(0), y.stride(1), y.stride(2)},
      table.cosine.const_data_ptr<Number>(),
      table.sine.const_data_ptr<Number>(),
      x.size(1),
      x.size(2),
      x.size(3),
      half,
      table.interleaved,
      back ? -1.0F : 1.0F};
  at::parallel_for(
      0, x.size(0) * x.size(2), kPositionsPerThread,
      [&](std::int64_t begin, std::int64_t end) { turn_positions(rotation, begin, end); });
}

at::Tensor turned(const at::Tensor& heads, const RopeTable& table, bool back) {
  const at::Tensor x = heads.stride(-1) == 1 ? heads : heads.contiguous();
  const at::Tensor y =
      at::empty({x.size(0), x.size(2), x.size(1), x.size(3)}, x.options()).transpose(1, 2);
  if (!x.is_cpu()) {
    launch_kernel(&DeviceKernels::rotate, rotation_call(x, y, table, back), x);
  } else if (x.scalar_type() == at::kFloat) {
    turn_all<float>(x, y, table, back);
  } else {
    turn_all<c10::BFloat16>(x, y, table, back);
  }
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
