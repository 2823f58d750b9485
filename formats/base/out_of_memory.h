// Memory that could not be had, with how much was asked for where that is known.
#pragma once

#include <new>
#include <string>
#include <utility>

namespace regroup {

/// Thrown where a library's own exception says that an allocation failed. The program tells of it
/// as of any std::bad_alloc, in one place.
class OutOfMemory : public std::bad_alloc {
 public:
  /// `what` is a clause: "16.0 GiB more could not be had".
  explicit OutOfMemory(std::string what) : what_(std::move(what)) {}

  const char* what() const noexcept override { return what_.c_str(); }

 private:
  std::string what_;
};

}  // namespace regroup
