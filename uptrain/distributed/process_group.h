// Exchanges between ranks: sums, gathers, and the ranks of one sequence.
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "uptrain/distributed/launch.h"
#include "uptrain/ops/attention.h"

namespace c10d {
class Work;
}

namespace regroup {

// The processes that train one model together, each with a device of its own.

/// A collective operation in flight.
struct Pending {
  std::function<bool()> is_done;  ///< does not block
  std::function<void()> wait;     ///< blocks until it is done; throws on failure
  /// Later work of this thread on the tensor's device comes after it. On a GPU, the host does not
  /// wait, and what fails there is reported by the next wait().
  std::function<void()> in_order;
};

/// What a rank has exchanged with others.
struct Communication {
  double seconds = 0.0;  ///< in which its host waited for it
  /// Bytes of tensors. What algorithms move on the way is not counted, except for sums on all
  /// ranks, which count as a ring.
  double sent = 0.0, received = 0.0;
};

/// All ranks call the same functions in the same order. A rank that has ended, or does not answer
/// within the timeout, causes a kEnvironment error that says so.
class ProcessGroup {
 public:
  /// Connects to the other ranks of `launch` within `timeout`, to exchange tensors on `device`.
  ProcessGroup(const Launch& launch, c10::Device device, std::chrono::milliseconds timeout);
  ProcessGroup(const ProcessGroup&) = delete;
  ProcessGroup& operator=(const ProcessGroup&) = delete;
  /// Waits up to 30 s for the other ranks, unless this one ends in an error.
  ~ProcessGroup();

  /// Divides the ranks into as many groups of consecutive ranks, of which each holds a copy of the
  /// weights. All ranks call it, always with the same number.
  void divide(int copies);

  /// The ranks that hold this rank's copy of the weights together: all, unless divided.
  ProcessGroup& sharing() { return sharing_ != nullptr ? *sharing_ : *this; }

  /// The ranks that hold the same part of each copy; null unless divided.
  ProcessGroup* copies() { return copies_.get(); }

  /// Divides the ranks into groups of `parts` consecutive ranks, of which each computes a part of
  /// the same sequences. All ranks call it, always with the same number.
  void divide_sequences(int parts);

  /// The ranks that compute this rank's sequences together; null unless divided.
  ProcessGroup* sequences() { return sequences_.get(); }

  /// The number of shares of a step's batches, and this rank's: ranks that compute the same
  /// sequences have the same one.
  int shares() const { return size_ / parts_; }
  int share() const { return rank_ / parts_; }

  /// What this rank has exchanged so far, in this group and those that it was divided into.
  const Communication& communication() const { return *communication_; }

  int rank() const { return rank_; }
  int size() const { return size_; }
  bool first() const { return rank_ == 0; }
  c10::Device device() const { return device_; }

  /// The sum over all ranks, bitwise identical on each (all-reduce).
  at::Tensor sum(const at::Tensor& tensor) const;

  /// Starts to replace the contiguous tensor of each rank by their sum, bitwise identical on each.
  Pending sum_in_place(const at::Tensor& tensor) const;

  /// Starts to sum the contiguous tensors of all ranks into that of `root`; the contents of the
  /// others are unspecified afterwards.
  Pending reduce(const at::Tensor& tensor, int root) const;

  /// Starts to copy the contiguous tensor of `root` to all ranks.
  Pending broadcast(const at::Tensor& tensor, int root) const;

  /// The text of each rank, in rank order (all-gather).
  std::vector<std::string> exchange(const std::string& text);

  /// Rank 0 calls `work`; the others wait until it is done, up to ten times the timeout.
  void on_first(const std::function<void()>& work);

 private:
  struct Group;

  // Some of the ranks of another group, which is divided under that name.
  ProcessGroup(const ProcessGroup& whole, const std::string& name, int rank, int size);

  Pending counted(const c10::intrusive_ptr<c10d::Work>& work, double sent, double received) const;
  double ring_bytes(const at::Tensor& tensor) const;
  std::string next_key();
  void meet() const;  // a barrier
  void connect() const;
  void wait_for_all_to_leave() const;

  int rank_;
  int size_;
  c10::Device device_;
  std::chrono::milliseconds timeout_;
  std::unique_ptr<Group> group_;
  std::shared_ptr<Communication> communication_ = std::make_shared<Communication>();
  int parts_ = 1;                                               // of a sequence
  std::unique_ptr<ProcessGroup> sharing_, copies_, sequences_;  // null unless divided
  int keys_ = 0;                                                // used in the store so far
  int exceptions_ = std::uncaught_exceptions();                 // when this was constructed
};

// Sequences that consecutive ranks compute together, each a part of them.
//
// Earlier keys and values are gathered whole. With G kv heads of H query heads, a gather by N ranks
// moves (N - 1)·2G/N heads of each token, and Ulysses' all-to-all (Jacobs et al. 2023,
// https://arxiv.org/abs/2309.14509) (N - 1)·(2H + 2G)/N² of them: less only for N > 1 + H/G, and
// then with N kv heads at least.

class RanksOfSequence final : public SequencePart {
 public:
  /// `ranks`: those of the same sequences, in the order of their parts.
  explicit RanksOfSequence(const ProcessGroup& ranks) : ranks_(ranks) {}

  std::int64_t number() const override { return ranks_.rank(); }
  std::int64_t parts() const override { return ranks_.size(); }
  KeysAndValues joined(const KeysAndValues& own) const override;
  KeysAndValues own_sums(const KeysAndValues& all) const override;
  at::Tensor sum(const at::Tensor& own) const override { return ranks_.sum(own); }

 private:
  const ProcessGroup& ranks_;
};

/// Those of this rank's sequences, if `group` is divided so.
std::optional<RanksOfSequence> ranks_of_sequence(ProcessGroup* group);

}  // namespace regroup
