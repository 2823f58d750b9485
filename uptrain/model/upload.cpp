#include "uptrain/model/upload.h"

#include <cstdint>
#include <cstring>

#include <ATen/ops/empty.h>

namespace regroup {
namespace {

// Offsets of tensors in the transfer: a multiple of any element's size.
constexpr std::int64_t kAlignment = 16;

std::int64_t room_for(const at::Tensor& tensor) {
  const auto bytes = tensor.defined() ? static_cast<std::int64_t>(tensor.nbytes()) : 0;
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

std::vector<at::Tensor> upload(const std::vector<at::Tensor>& tensors, at::Device device) {
  if (device.is_cpu()) {
    return tensors;
  }
  std::int64_t size = 0;
  for (const at::Tensor& tensor : tensors) {
    size += room_for(tensor);
  }
  at::Tensor packed = at::empty({size}, at::TensorOptions().dtype(at::kByte).pinned_memory(true));
  auto* to = packed.mutable_data_ptr<std::uint8_t>();
  for (const at::Tensor& tensor : tensors) {
    if (tensor.defined() && tensor.numel() > 0) {
      const at::Tensor dense = tensor.contiguous();
      std::memcpy(to, dense.const_data_ptr(), dense.nbytes());
      to += room_for(tensor);
    }
  }
  const at::Tensor there = packed.to(device, at::kByte, /*non_blocking=*/true);
  std::vector<at::Tensor> results;
  std::int64_t offset = 0;
  for (const at::Tensor& tensor : tensors) {
    results.push_back(tensor.defined()
                          ? there.narrow(0, offset, static_cast<std::int64_t>(tensor.nbytes()))
                                .view(tensor.scalar_type())
                                .view(tensor.sizes())
                          : tensor);
    offset += room_for(tensor);
  }
  return results;
}

}  // namespace regroup
