// The three streams that every program expects to have.
#pragma once

namespace regroup {

/// To be called first. Where stdin, stdout or stderr is closed, /dev/null takes its place, opened
/// so that using it fails as using a closed stream does: else the next file that is opened, perhaps
/// one of weights, would get its number and what is printed. A pipe that nobody reads any more is
/// an error of the write from now on, not the end of the process.
void secure_standard_streams();

}  // namespace regroup
