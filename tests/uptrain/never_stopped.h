// A stop flag that is never set, for functions that tests run to completion.
#pragma once

#include <atomic>

namespace regroup {

inline const std::atomic<bool> kNeverStopped{false};

}  // namespace regroup
