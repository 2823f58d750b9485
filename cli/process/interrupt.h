// Ctrl-C, SIGTERM and the end of the terminal: the first asks the work to stop, the second ends the
// program at once.
#pragma once

#include <atomic>

namespace regroup {

/// Catches SIGINT, SIGTERM and, unless it is ignored, SIGHUP from now on.
void install_interrupt_handlers();

/// Turns true with the first of them. Long work looks at it between its steps.
const std::atomic<bool>& interrupt_requested();

/// The signal that came, or 0.
int interrupting_signal();

}  // namespace regroup
