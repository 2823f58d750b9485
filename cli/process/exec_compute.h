// Commands that begin without LibTorch and find that they need it.
#pragma once

namespace regroup {

/// Replaces the launcher (cli/launcher.cpp) by the program with LibTorch, which runs the same
/// command line from its beginning; throws kEnvironment if that cannot start. In other programs
/// this returns and does nothing. Call it before a command changes or prints anything.
void exec_compute();

}  // namespace regroup
