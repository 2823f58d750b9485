// For commands that start without LibTorch and turn out to need it.
#pragma once

namespace regroup {

/// In the launcher (cli/launcher.cpp): executes the program with LibTorch, which runs the same
/// command line from the beginning; throws kEnvironment if that program cannot start. In other
/// programs it does nothing. Call it before the command changes or prints anything.
void exec_compute();

/// Sets what exec_compute() does.
void set_exec_compute(void (*execute)());

}  // namespace regroup
