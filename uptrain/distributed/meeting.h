// How the ranks of one start of a run find each other in a store that outlives it.
#pragma once

#include <chrono>
#include <string>

#include <torch/csrc/distributed/c10d/Store.hpp>

namespace regroup {

/// A name that all ranks of this start share and no earlier one had. torchrun keeps its store, with
/// the keys of ranks that were killed, when it starts ranks again, and the restart counts that it
/// passes to them differ between machines: a machine on which no rank failed does not count. So
/// rank 0 answers a random number of each other rank. All ranks call this. Throws
/// c10::DistStoreError naming the ranks that do not within `timeout`.
std::string meet_in(c10d::Store& store, int rank, int ranks, std::chrono::milliseconds timeout);

}  // namespace regroup
