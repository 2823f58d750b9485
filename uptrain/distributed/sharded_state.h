// Named tensors of which each rank has some, brought together on the first and handed out again.
#pragma once

#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "uptrain/distributed/process_group.h"
#include "uptrain/model/parameters.h"

namespace regroup {

/// What is saved and loaded this way does not show how many ranks there were. All ranks call the
/// same functions.
class ShardedState {
 public:
  /// `own`: this rank's tensors, read and written in place from now on; those of one name are equal
  /// on all ranks that have it. `ranks` is null where there is one process only.
  ShardedState(ProcessGroup* group, std::vector<Parameters::Entry> own);

  /// On the first rank the tensors of all: its own, and of others copies in host memory. Nothing on
  /// the others.
  std::vector<Parameters::Entry> gather() const;

  /// The same without the copies' values: what scatter() takes, to be filled.
  std::vector<Parameters::Entry> places() const;

  /// Gives what the first rank has in `all` to those whose it is. On the others `all` is not used.
  void scatter(const std::vector<Parameters::Entry>& all) const;

 private:
  struct Shared {
    std::string name;
    std::vector<std::int64_t> shape;
    at::ScalarType type = at::kFloat;
    int owner = 0;         // the first rank that has it
    bool several = false;  // others have it, too
    at::Tensor own;        // undefined on ranks that do not
  };
  at::Tensor scratch(const Shared& shared) const;

  ProcessGroup* group_;
  std::vector<Shared> shared_;
};

}  // namespace regroup
