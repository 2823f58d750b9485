// Gradients on their way from the device to the host, and weights on their way back.
#pragma once

#include <cstddef>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>

namespace regroup {

/// Copies go through pinned memory, and the host does not wait for them. They are queued behind the
/// work that computes on the device, so what is copied is freed in order and no copies pile up.
class HostTransfer {
 public:
  /// For `weights`, tensors of a device, whose gradients have the type `gradient_type`.
  HostTransfer(const std::vector<at::Tensor>& weights, at::ScalarType gradient_type);

  /// Adds the gradients of an earlier batch of the same step, if there is one, to sums in fp32.
  /// Waits for these gradients, not for work that was queued after end_batch(). Call it before the
  /// gradients of a further batch come.
  void begin_batch();

  /// Starts to copy the gradient of a weight to the host.
  void receive(std::size_t weight, const at::Tensor& gradient);

  /// All gradients of a batch have been received.
  void end_batch();

  /// Waits for all copies. Returns the sums of several batches, or the gradients of a single one in
  /// their own type; they are valid until the next receive() or send(). Replaces `figure`, a scalar
  /// of the device, by a copy on the host.
  std::vector<at::Tensor> finish(at::Tensor& figure);

  /// Starts to copy `master`, a tensor of the host, to a weight. The host must have waited for
  /// earlier copies.
  void send(std::size_t weight, const at::Tensor& master);

 private:
  void add_to_sums();

  std::vector<at::Tensor> weights_;
  std::vector<at::Tensor> gradients_;  // pinned
  std::vector<at::Tensor> outgoing_;   // pinned; the same memory if the types are equal
  std::vector<at::Tensor> sums_;
  c10::Event received_;   // the end of the last batch
  bool pending_ = false;  // its gradients are not in the sums yet
};

}  // namespace regroup
