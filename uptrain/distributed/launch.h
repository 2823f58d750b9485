// Which of several processes this one is, as torchrun, mpirun or srun tell it.
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace regroup {

/// One process of a run on many devices, a rank, and where all of them meet.
struct Launch {
  int rank = 0;
  int ranks = 1;
  int local_rank = 0;   ///< among those of this machine: the device to use
  int local_ranks = 1;  ///< on this machine, as far as it is known
  std::string address;  ///< of the machine of rank 0
  int port = 0;
  bool has_store = false;  ///< torchrun listens there; elsewhere rank 0 does
  std::string attempt;     ///< which start of the same processes this is, after failures

  bool alone() const { return ranks == 1; }
};

/// The value of a variable of the environment; none where it is not set or empty.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;

/// The environment of this process.
std::optional<std::string> variable_of_process(const std::string& name);

/// Reads RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT (torchrun, and by hand), or what
/// Open MPI, MPICH and its relatives, or srun set in their place. Where none of them speaks, this
/// is the only process. Without MASTER_ADDR the machine is this one if all ranks are on it, and
/// under srun the first of the job; without MASTER_PORT the port is 29500, under srun one that the
/// job's number gives. Throws kUsage naming what is missing or is no number.
Launch launch_from(const Environment& environment);

/// "node[008-011,20],other3" -> "node008": the first host in SLURM's way of writing several.
std::string first_host(const std::string& hosts);

}  // namespace regroup
