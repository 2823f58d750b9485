// Where ranks on this machine can meet.
#pragma once

namespace regroup {

/// A port that nobody listens on now.
int free_port();

}  // namespace regroup
