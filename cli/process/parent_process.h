// Ends the program with the process that started it.
#pragma once

namespace regroup {

/// If REGROUP_PARENT is the number of the parent process, this process receives SIGTERM when the
/// parent ends. Otherwise, the variable of another process was inherited, and nothing is done. The
/// Python package sets it: its programs are in process groups of their own, which no terminal or
/// notebook ends.
void stop_with_parent();

}  // namespace regroup
