// The processes that train one model together, each with a device of its own.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "uptrain/distributed/launch.h"

namespace regroup {

/// What ranks have begun to do together.
struct Pending {
  std::function<bool()> is_done;  ///< asks, and does not wait
  std::function<void()> wait;     ///< until it is done; throws what went wrong
};

/// All ranks call the same functions in the same order. Whatever goes wrong among them, a rank that
/// has ended or one that does not answer within the timeout, is a kEnvironment error that says so.
class ProcessGroup {
 public:
  /// Meets the other ranks of `launch`, within `timeout`, to exchange tensors on `device`.
  ProcessGroup(const Launch& launch, c10::Device device, std::chrono::milliseconds timeout);
  ProcessGroup(const ProcessGroup&) = delete;
  ProcessGroup& operator=(const ProcessGroup&) = delete;
  ~ProcessGroup();

  int rank() const { return rank_; }
  int size() const { return size_; }
  bool first() const { return rank_ == 0; }
  c10::Device device() const { return device_; }

  /// The sum of what all ranks give, the same on each to the last bit.
  at::Tensor sum(const at::Tensor& tensor) const;

  /// Begins to add up contiguous tensors of all ranks in that of `root`; the others' are scratch
  /// afterwards.
  Pending reduce(const at::Tensor& tensor, int root) const;

  /// Begins to give the contiguous tensor of `root` to all.
  Pending broadcast(const at::Tensor& tensor, int root) const;

  /// What each rank says, in their order.
  std::vector<std::string> exchange(const std::string& text);

  /// Rank 0 does this, the others wait until it is done: ten times as long as for anything else.
  void on_first(const std::function<void()>& work);

 private:
  struct Group;

  std::string next_key();
  void meet() const;  // nobody goes on before all are here

  int rank_;
  int size_;
  c10::Device device_;
  std::chrono::milliseconds timeout_;
  std::unique_ptr<Group> group_;
  int keys_ = 0;  // used in the store so far
};

}  // namespace regroup
