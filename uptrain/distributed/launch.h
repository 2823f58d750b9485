// How ranks find each other.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>

#include <torch/csrc/distributed/c10d/Store.hpp>

namespace regroup {

// Rank and world size of this process, as set by torchrun, mpirun or srun.

/// One process (rank) of a run on many devices, and the address where all ranks meet.
struct Launch {
  int rank = 0;
  int ranks = 1;
  int local_rank = 0;   ///< rank on this machine: the device to use
  int local_ranks = 1;  ///< on this machine, as far as it is known
  std::string address;  ///< of the machine of rank 0
  int port = 0;
  bool has_store = false;  ///< whether torchrun listens there; otherwise rank 0 does
  bool launched = false;   ///< by a launcher, which may start more ranks later

  bool alone() const { return ranks == 1; }
};

/// The value of an environment variable; none if it is not set or empty.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;

/// The environment of this process.
std::optional<std::string> variable_of_process(const std::string& name);

/// Reads RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT (torchrun, and by hand), or what
/// Open MPI, MPICH and its relatives, or srun set in their place. If none is set, this is the only
/// process. The default of MASTER_ADDR is this machine if all ranks are on it, and under srun the
/// first host of the job. The default of MASTER_PORT is 29500, and under srun a port derived from
/// the job id. Throws kUsage naming a variable that is missing or not a number.
Launch launch_from(const Environment& environment);

/// "node[008-011,20],other3" -> "node008": the first host of a SLURM host list.
std::string first_host(const std::string& hosts);

// How the ranks of one start of a run find each other in a store that outlives it.

/// A name that all ranks of this start share and no earlier one had. torchrun keeps its store, with
/// the keys of ranks that were killed, when it starts ranks again, and the restart counts that it
/// passes to them differ between machines: a machine on which no rank failed does not count. So
/// rank 0 answers a random number of each other rank. All ranks call this. Throws
/// c10::DistStoreError naming the ranks that do not within `timeout`.
std::string meet_in(c10d::Store& store, int rank, int ranks, std::chrono::milliseconds timeout);

}  // namespace regroup
