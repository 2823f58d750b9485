// For functions that can be stopped, in tests that let them finish.
#pragma once

#include <atomic>

namespace regroup {

inline const std::atomic<bool> kNeverStopped{false};

}  // namespace regroup
