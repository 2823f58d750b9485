// Values that may be missing, as JSON.
#pragma once

#include <optional>

#include "formats/json/json.h"

namespace regroup {

template <typename T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

}  // namespace regroup
