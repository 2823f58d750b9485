// Errors: one line of text and a kind, from which the exit code follows; stop requests; failed
// allocations.
#pragma once

#include <atomic>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>

#include <fmt/format.h>

namespace regroup {

/// The kind of error, by what a caller can do about it. The program maps each kind to an exit code.
enum class ErrorKind {
  kUsage,             ///< the request is invalid for this input (a wrong option or value)
  kBadInput,          ///< a file or model cannot be used
  kEnvironment,       ///< I/O, memory or device failed
  kDifference,        ///< a verification found a difference
  kInterrupted,       ///< stopped on request; no output is left
  kInterruptedSaved,  ///< stopped on request; the saved state can be resumed
};

/// The message is one line: what failed, where (file, tensor or key), what was found, what is
/// allowed.
class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}

  ErrorKind kind() const { return kind_; }

 private:
  ErrorKind kind_;
};

template <typename... Args>
[[noreturn]] void throw_usage(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(ErrorKind::kUsage, fmt::format(format, std::forward<Args>(args)...));
}

template <typename... Args>
[[noreturn]] void throw_bad_input(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(ErrorKind::kBadInput, fmt::format(format, std::forward<Args>(args)...));
}

template <typename... Args>
[[noreturn]] void throw_environment(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(ErrorKind::kEnvironment, fmt::format(format, std::forward<Args>(args)...));
}

// Long work that ends early on request.

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

/// Thrown in place of a library's own exception for a failed allocation. The program reports it
/// like any other std::bad_alloc.
class OutOfMemory : public std::bad_alloc {
 public:
  /// `what` is a clause such as "16.0 GiB more could not be allocated".
  explicit OutOfMemory(std::string what) : what_(std::move(what)) {}

  const char* what() const noexcept override { return what_.c_str(); }

 private:
  std::string what_;
};

}  // namespace regroup
