// Names the settings in which two recipes differ.
#pragma once

#include <string>
#include <string_view>

#include "formats/json/json.h"

namespace regroup {

/// Each setting that only one of two recipes has, or that differs between them, with the option
/// that sets it, joined by "; ". Empty if there is none. `form` says how, such as "{} was {}, now
/// {}": the setting, then its value in `first` and in `second`, "none" where it is missing or null.
std::string recipe_differences(const Json& first, const Json& second, std::string_view form);

}  // namespace regroup
