#include "uptrain/ops/device_rms_norm.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/sum.h>

namespace regroup {
namespace {

const void* data_or_null(const at::Tensor& x) { return x.defined() ? x.const_data_ptr() : nullptr; }

}  // namespace

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
  on_current_stream(x, [&](const DeviceKernels& device_kernels, void* stream) {
    return device_kernels.normalise(call, stream);
  });
  return norm;
}

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
  on_current_stream(saved.x, [&](const DeviceKernels& device_kernels, void* stream) {
    return device_kernels.differentiate_norm(call, stream);
  });
  return {by_x, with_weight ? by_weight.sum(0).to(saved.weight.scalar_type()) : at::Tensor()};
}

}  // namespace regroup
