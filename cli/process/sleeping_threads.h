// Makes LibTorch's worker threads sleep while they wait.
#pragma once

namespace regroup {

/// Executes the program again with OMP_WAIT_POLICY=passive, unless OMP_WAIT_POLICY or
/// GOMP_SPINCOUNT is set. By default OpenMP's threads spin while they wait for each other, and only
/// the environment at the start of the program can change that. On a busy machine spinning is slow:
/// a small model on two busy cores trains five times slower. Call it before any work.
void let_threads_sleep();

}  // namespace regroup
