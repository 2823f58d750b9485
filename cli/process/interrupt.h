// Ctrl-C, SIGTERM and SIGHUP: the first signal requests a stop, another one a second later or more
// ends the program at once.
#pragma once

#include <atomic>

namespace regroup {

/// Installs handlers for SIGINT, SIGTERM and, unless it is ignored, SIGHUP.
void install_interrupt_handlers();

/// Requests a stop as the signal `number` does, unless one is requested already; a second call does
/// nothing. Signal handlers may call it.
void request_interrupt(int number);

/// Becomes true with the first signal. Long-running code checks it between its steps.
const std::atomic<bool>& interrupt_requested();

/// The number of the first signal, or 0.
int interrupting_signal();

}  // namespace regroup
