// Guards stdin, stdout and stderr.
#pragma once

namespace regroup {

/// Call it first. If stdin, stdout or stderr is closed, opens /dev/null in its place, so that no
/// other file gets that descriptor: output would be written into it, perhaps into weights. Reading
/// or writing the replacement fails, as it does for a closed stream. Also ignores SIGPIPE, so that
/// writing to a closed pipe is an error and does not end the process.
void secure_standard_streams();

}  // namespace regroup
