// The process: its streams, its signals, its parent and its memory.
#pragma once

#include <atomic>

namespace regroup {

/// Keeps freed memory in the process for later allocations instead of returning it to the kernel,
/// which would have to clear the pages again. A training step frees and allocates the same
/// gigabytes; reading headers does the same with megabytes. Applies to the whole process.
void keep_freed_memory();

/// If REGROUP_PARENT is the number of the parent process, the end of the parent requests a stop as
/// SIGTERM does. Otherwise the variable is another process's, and nothing is done. The Python
/// package sets it: it starts programs in sessions of their own, which a terminal or notebook that
/// is closed does not end.
void stop_with_parent();

/// Call it first. If stdin, stdout or stderr is closed, opens /dev/null in its place, so that no
/// other file gets that descriptor: output would be written into it, perhaps into weights. Reading
/// or writing the replacement fails, as it does for a closed stream. Also ignores SIGPIPE, so that
/// writing to a closed pipe is an error and does not end the process.
void secure_standard_streams();

// Ctrl-C, SIGTERM and SIGHUP: the first signal requests a stop, another one a second later or more
// ends the program at once.

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
