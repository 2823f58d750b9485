#include "uptrain/trainer/host_transfer.h"

#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/empty.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "uptrain/model/device.h"

namespace regroup {
namespace {

at::Tensor pinned(at::IntArrayRef sizes, at::ScalarType type) {
  return at::empty(sizes, at::TensorOptions().dtype(type).pinned_memory(true));
}

}  // namespace

HostTransfer::HostTransfer(const std::vector<at::Tensor>& weights, at::ScalarType gradient_type)
    : received_(weights.front().device().type()) {
  for (const at::Tensor& weight : weights) {
    weights_.push_back(weight.detach());
    gradients_.push_back(pinned(weight.sizes(), gradient_type));
    outgoing_.push_back(weight.scalar_type() == gradient_type
                            ? gradients_.back()
                            : pinned(weight.sizes(), weight.scalar_type()));
  }
}

void HostTransfer::receive(std::size_t weight, const at::Tensor& gradient) {
  const at::NoGradGuard no_gradients;
  gradients_[weight].copy_(gradient, /*non_blocking=*/true);
}

void HostTransfer::begin_batch() {
  if (pending_) {
    received_.synchronize();
    add_to_sums();
  }
}

void HostTransfer::end_batch() {
  const at::Device device = weights_.front().device();
  received_.record(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
  pending_ = true;
}

void HostTransfer::add_to_sums() {
  pending_ = false;
  if (!sums_.empty()) {
    at::_foreach_add_(sums_, gradients_);
    return;
  }
  for (const at::Tensor& gradient : gradients_) {
    sums_.push_back(gradient.to(at::kFloat, /*non_blocking=*/false, /*copy=*/true));
  }
}

std::vector<at::Tensor> HostTransfer::finish(at::Tensor& figure) {
  const at::Tensor here = pinned(figure.sizes(), figure.scalar_type());
  here.copy_(figure, /*non_blocking=*/true);
  wait_for(weights_.front().device());
  figure = here;
  pending_ = pending_ && !sums_.empty();
  if (pending_) {
    add_to_sums();
  }
  return sums_.empty() ? gradients_ : std::exchange(sums_, {});
}

void HostTransfer::send(std::size_t weight, const at::Tensor& master) {
  const at::NoGradGuard no_gradients;
  outgoing_[weight].copy_(master);
  weights_[weight].copy_(outgoing_[weight], /*non_blocking=*/true);
}

}  // namespace regroup
