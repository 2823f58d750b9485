#include "cli/process/malloc_tuning.h"

#include <limits>
#include <malloc.h>

namespace regroup {

void keep_freed_memory() {
  constexpr int kNever = std::numeric_limits<int>::max();
  constexpr int kAtOnce = 4 << 20;  // bytes
  ::mallopt(M_MMAP_THRESHOLD, kNever);
  ::mallopt(M_TRIM_THRESHOLD, kNever);
  ::mallopt(M_TOP_PAD, kAtOnce);
}

}  // namespace regroup
