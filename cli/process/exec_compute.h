// Commands that begin without LibTorch and find that they need it.
#pragma once

namespace regroup {

/// To be called before a command changes or prints anything. Where this program is without LibTorch
/// and stands in for another that has it (cli/launcher.cpp), that one takes its place and begins
/// anew; throws kEnvironment if it cannot. Elsewhere nothing happens.
void exec_compute();

}  // namespace regroup
