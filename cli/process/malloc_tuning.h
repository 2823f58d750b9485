// Settings of glibc's malloc.
#pragma once

namespace regroup {

/// Keeps freed memory in the process for later allocations instead of returning it to the kernel,
/// which would have to clear the pages again. A training step frees and allocates the same
/// gigabytes; reading headers does the same with megabytes. Applies to the whole process.
void keep_freed_memory();

}  // namespace regroup
