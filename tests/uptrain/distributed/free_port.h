// Ranks on this machine.
#pragma once

#include "uptrain/distributed/launch.h"

namespace regroup {

/// A port that no process listens on at this moment.
int free_port();

/// What one of two, or of several, ranks that meet at `port` is started with.
Launch launch_of_two(int rank, int port);
Launch launch_of(int rank, int ranks, int port);

}  // namespace regroup
