// The exception type of the libraries: a one-line message and the kind of error.
#pragma once

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

}  // namespace regroup
