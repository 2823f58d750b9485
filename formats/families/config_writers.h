// The inverse of describe_model(): a config.json for a model of a given architecture.
#pragma once

#include <string_view>
#include <vector>

#include "formats/json/json.h"
#include "formats/spec/model_spec.h"

namespace regroup {

/// Architectures that write_config() knows.
std::vector<std::string_view> writable_architectures();

/// A config of that architecture which says of `spec` what the architecture can say; whether that
/// is all of it is for the caller to find out, by describing the config and comparing. Throws
/// kUsage for an architecture it does not know.
Json write_config(std::string_view architecture, const ModelSpec& spec);

}  // namespace regroup
