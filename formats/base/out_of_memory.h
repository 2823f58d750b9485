// A failed allocation, with the requested size if known.
#pragma once

#include <new>
#include <string>
#include <utility>

namespace regroup {

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
