// Long work that ends early on request.
#pragma once

#include <atomic>
#include <utility>

#include "formats/base/error.h"

namespace regroup {

/// Throws kInterrupted with this message once `stop` is set.
inline void throw_if_stopped(const std::atomic<bool>& stop, const char* message) {
  if (stop) {
    throw Error(ErrorKind::kInterrupted, message);
  }
}

/// What check_stop() looks at on this thread. Work that is deep inside another's, such as a product
/// of a model's pass, has no other way to learn of a request.
class StopScope {
 public:
  /// Until this scope ends, `stop` is looked at; null: nothing, because a request is answered in
  /// good order, between steps.
  explicit StopScope(const std::atomic<bool>* stop) : before_(std::exchange(current(), stop)) {}
  StopScope(const StopScope&) = delete;
  StopScope& operator=(const StopScope&) = delete;
  ~StopScope() { current() = before_; }

  /// Null outside all scopes.
  static const std::atomic<bool>*& current() {
    thread_local const std::atomic<bool>* stop = nullptr;
    return stop;
  }

 private:
  const std::atomic<bool>* before_;
};

/// Throws kInterrupted once the innermost scope's request is made.
inline void check_stop() {
  if (const std::atomic<bool>* stop = StopScope::current(); stop != nullptr) {
    throw_if_stopped(*stop, "interrupted; nothing was left behind");
  }
}

}  // namespace regroup
