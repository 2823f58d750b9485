// The one exception type of the libraries: a message of one line and the kind of fault behind it.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

#include <fmt/format.h>

namespace regroup {

/// What went wrong, in the terms a caller can act on. The program maps each kind to an exit code.
enum class ErrorKind {
  kUsage,             ///< the request makes no sense for this input (a wrong option or value)
  kBadInput,          ///< a file or model that cannot be used
  kEnvironment,       ///< I/O, memory or device failed
  kDifference,        ///< a verification found a difference
  kInterrupted,       ///< stopped on request, with nothing left behind
  kInterruptedSaved,  ///< stopped on request, with the state saved to go on from
};

/// Carries one line: what, where (file, tensor or key), found, allowed.
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

}  // namespace regroup
