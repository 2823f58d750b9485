// Long work that ends early on request.
#pragma once

#include <atomic>

#include "formats/base/error.h"

namespace regroup {

/// Throws kInterrupted with this message once `stop` is set.
inline void throw_if_stopped(const std::atomic<bool>& stop, const char* message) {
  if (stop) {
    throw Error(ErrorKind::kInterrupted, message);
  }
}

}  // namespace regroup
