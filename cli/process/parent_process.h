// Stops the program with the process that started it.
#pragma once

namespace regroup {

/// If REGROUP_PARENT is the number of the parent process, the end of the parent requests a stop as
/// SIGTERM does. Otherwise the variable is another process's, and nothing is done. The Python
/// package sets it: it starts programs in sessions of their own, which a terminal or notebook that
/// is closed does not end.
void stop_with_parent();

}  // namespace regroup
