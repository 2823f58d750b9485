// Functions that a caller may give to be told of progress.
#pragma once

#include <functional>
#include <utility>

namespace regroup {

/// Calls `callback` unless it is empty: a caller who needs no reports gives {}.
template <typename... Parameters, typename... Arguments>
void call_if_given(const std::function<void(Parameters...)>& callback, Arguments&&... arguments) {
  if (callback) {
    callback(std::forward<Arguments>(arguments)...);
  }
}

}  // namespace regroup
