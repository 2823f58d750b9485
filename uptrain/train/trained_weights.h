// Weights in training: their gradients, and their way to and from the host.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>

#include "formats/spec/model_spec.h"
#include "uptrain/train/optimizer.h"

namespace regroup {

/// Receives the sum of the gradients of a parameter and its index.
using SumTaker = std::function<void(std::size_t parameter, at::Tensor sum)>;

/// The type of gradients.
enum class GradientType {
  kWide,      ///< fp32 (fp64 for fp64 parameters), whatever type the model computes in
  kComputed,  ///< the parameters' own: for a single loss, of which nothing is summed
};

/// Accumulates the gradients of several losses.
class GradientSum {
 public:
  /// Sums gradients of `parameters`, leaves that require gradients.
  explicit GradientSum(std::vector<at::Tensor> parameters, GradientType type = GradientType::kWide);

  /// Adds the gradients of a scalar `loss`; its graph is freed. Throws c10::Error if it does not
  /// depend on one of the parameters.
  void add(const at::Tensor& loss);

  /// The same for the last loss of a sum: passes the sum of each parameter to `take` as soon as it
  /// is complete, in any order, during the backward pass, and drops it. `take` is called in
  /// autograd's thread for the loss's device, one call at a time.
  void add_last(const at::Tensor& loss, const SumTaker& take);

  /// The sums, one per parameter, in their order.
  const std::vector<at::Tensor>& sums() const { return sums_; }

  void clear() { sums_.clear(); }

  std::vector<at::Tensor> take() { return std::exchange(sums_, {}); }

 private:
  void differentiate(const at::Tensor& loss, const SumTaker& take) const;
  at::Tensor completed(const at::Tensor& gradient) const;

  std::vector<at::Tensor> parameters_;
  GradientType type_;
  std::vector<at::Tensor> sums_;
};

/// The Euclidean norm of all tensors taken as one vector: a scalar tensor on their device, in fp32
/// for narrower ones.
at::Tensor global_norm(const std::vector<at::Tensor>& tensors);

// Gradients on their way from the device to the host, and weights on their way back.

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

/// Which weights a run may change.
enum class TrainedWeights {
  kAll,
  kAttention,      ///< every attention: projections, norms of queries and keys, relative biases
  kKeysAndValues,  ///< what conversion changes: key and value projections, norms of keys
};

/// "all", "attention" or "kv".
std::string_view name_of(TrainedWeights which);

/// Reads such a name; throws kUsage for anything else.
TrainedWeights parse_trained_weights(std::string_view text);

/// Names of the tensors that hold such weights, in all roles of attention. Includes fused tensors
/// of queries, keys and values; FrozenQueries keeps their queries unchanged.
std::vector<std::string> trained_tensors(const ModelSpec& spec, TrainedWeights which);

/// Freezes the queries in fused tensors if only keys and values are trained.
class FrozenQueries {
 public:
  /// Stores the queries of `masters`; does nothing unless `which` is kKeysAndValues.
  FrozenQueries(const ModelSpec& spec, TrainedWeights which, const MasterWeights& masters);

  bool any() const { return !features_.empty(); }

  /// Zeroes their part of `gradients`, one per master.
  void clear(const std::vector<at::Tensor>& gradients) const;

  /// Restores their values: weight decay also changes weights without gradients.
  void restore() const;

 private:
  struct Features {
    std::size_t master = 0;
    std::int64_t dimension = 0;
    at::Tensor index;   // int64, along the dimension
    at::Tensor tensor;  // the master, or one of its halves
    at::Tensor values;  // the features' own
  };
  std::vector<Features> features_;
};

}  // namespace regroup
