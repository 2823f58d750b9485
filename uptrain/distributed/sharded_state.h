// Named tensors that are sharded over ranks: each rank's own, or gathered on the first rank and
// scattered again.
#pragma once

#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "uptrain/distributed/process_group.h"
#include "uptrain/model/state_tensor.h"

namespace regroup {

/// A state that is saved and loaded this way does not depend on the number of ranks. All ranks call
/// the same functions.
class ShardedState {
 public:
  /// `own`: this rank's tensors, read and written in place from now on. Tensors of the same name
  /// are equal on all ranks that have them. `group` is null for a single process.
  ShardedState(ProcessGroup* group, std::vector<StateTensor> own);

  /// The tensors that this rank saves if each saves a part: together those of all ranks, each once.
  std::vector<StateTensor> part() const;

  /// The tensors that this rank needs.
  std::vector<StateTensor> own() const;

  /// Returns the tensors of all ranks on the first rank: its own, and whole copies of the others in
  /// host memory. Returns nothing on other ranks.
  std::vector<StateTensor> gather() const;

  /// Whether each tensor of gather() is a copy, which nobody else holds; in the same order.
  std::vector<bool> gathered_copies() const;

  /// The tensors of gather() with uninitialised copies, to be filled and passed to scatter().
  std::vector<StateTensor> places() const;

  /// Sends the tensors in the first rank's `all` to the ranks that own them. On other ranks `all`
  /// is not used.
  void scatter(const std::vector<StateTensor>& all) const;

 private:
  struct Shared {
    std::string name;
    std::vector<std::int64_t> shape;
    at::ScalarType type = at::kFloat;
    int owner = 0;         // the first rank that has it
    bool several = false;  // other ranks have it, too
    StateTensor own;       // undefined on ranks that do not
  };
  at::Tensor sendable(const StateTensor& tensor) const;
  at::Tensor scratch(const Shared& shared) const;

  ProcessGroup* group_;
  std::vector<Shared> shared_;
};

}  // namespace regroup
