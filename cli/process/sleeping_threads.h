// LibTorch's worker threads, made to sleep while they wait.
#pragma once

namespace regroup {

/// OpenMP's threads spin while they wait for each other, unless the environment says otherwise
/// before the program starts. On a machine with anything else to do that costs most of the speed: a
/// small model on two busy cores trains five times slower. So this starts the program anew with
/// OMP_WAIT_POLICY=passive, unless the user has chosen. Call it before any work.
void let_threads_sleep();

}  // namespace regroup
