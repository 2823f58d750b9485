#include "uptrain/model/state_tensor.h"

#include <limits>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>

namespace regroup {
namespace {

constexpr int kHalf = 0x8000;

void split(const at::Tensor& whole, const at::Tensor& value, const at::Tensor& low) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  // A NaN whose bits are all ones, such as CUDA's, would round to a number.
  const at::Tensor bits =
      whole.nan_to_num(std::numeric_limits<double>::quiet_NaN(), kInfinity, -kInfinity)
          .view(at::kInt);
  low.copy_(bits);  // the lower 16 bits, with a sign
  value.view(at::kShort).copy_(bits.add_(kHalf).bitwise_right_shift_(16));
}

}  // namespace

at::Tensor StateTensor::read() const {
  if (!is_split()) {
    return value;
  }
  const at::NoGradGuard no_gradients;
  const at::Tensor whole = value.detach().to(at::kFloat);
  whole.view(at::kInt).add_(low);
  return whole;
}

void StateTensor::write(const at::Tensor& whole) const {
  const at::NoGradGuard no_gradients;
  if (is_split()) {
    split(whole.detach().to(value.device()), value.detach(), low);
  } else if (!whole.is_same(value)) {
    value.copy_(whole);
  }
}

StateTensor split_tensor(const std::string& name, const at::Tensor& value) {
  return {name, value,
          at::zeros(value.sizes(), value.options().dtype(at::kShort).requires_grad(false))};
}

}  // namespace regroup
