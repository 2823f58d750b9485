// A port for ranks on this machine.
#pragma once

namespace regroup {

/// A port that no process listens on at this moment.
int free_port();

}  // namespace regroup
