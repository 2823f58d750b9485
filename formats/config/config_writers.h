// The inverse of describe_model(): writes a config.json for a given architecture.
#pragma once

#include <string_view>
#include <vector>

#include "formats/json/json.h"
#include "formats/spec/model_spec.h"

namespace regroup {

/// Architectures that write_config() supports.
std::vector<std::string_view> writable_architectures();

/// A config of that architecture with everything of `spec` that the architecture can express. The
/// caller must check that nothing is lost, by describing the config and comparing. Throws kUsage
/// for an unsupported architecture.
Json write_config(std::string_view architecture, const ModelSpec& spec);

}  // namespace regroup
