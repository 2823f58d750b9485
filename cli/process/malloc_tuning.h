// What becomes of memory that is freed.
#pragma once

namespace regroup {

/// Keeps memory that is freed for what the process takes next, in place of handing it back: the
/// kernel clears what it hands out anew. A training step frees and takes the same gigabytes,
/// whoever reads headers a megabyte after another. Applies to the whole process.
void keep_freed_memory();

}  // namespace regroup
