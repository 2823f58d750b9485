// Gradients on their way from the device to the host, and weights on their way back.
#pragma once

#include <cstddef>
#include <vector>

#include <ATen/core/Tensor.h>

namespace regroup {

/// Copies go through pinned memory, and the host does not wait for them. They are queued behind the
/// work that computes on the device, so what is copied is freed in order and no copies pile up.
class HostTransfer {
 public:
  /// For `weights`, tensors of a device, whose gradients have the type `gradient_type`.
  HostTransfer(const std::vector<at::Tensor>& weights, at::ScalarType gradient_type);

  /// Starts to copy the gradient of a weight to the host.
  void receive(std::size_t weight, const at::Tensor& gradient);

  /// Waits for the gradients and adds them to sums in fp32, so that others can be received.
  void add_received();

  /// Waits for all copies. Moves the sums out, if there are any, else the received gradients, which
  /// are valid until the next receive() or send(). Replaces `figure`, a scalar of the device, by a
  /// copy on the host.
  std::vector<at::Tensor> finish(at::Tensor& figure);

  /// Starts to copy `master`, a tensor of the host, to a weight. The host must have waited for
  /// earlier copies.
  void send(std::size_t weight, const at::Tensor& master);

 private:
  std::vector<at::Tensor> weights_;
  std::vector<at::Tensor> gradients_;  // pinned
  std::vector<at::Tensor> outgoing_;   // pinned; the same memory if the types are equal
  std::vector<at::Tensor> sums_;
};

}  // namespace regroup
