// Writing config.json: kv heads, and whole configs of other families.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "formats/base/json.h"
#include "formats/spec/model_spec.h"

namespace regroup {

/// `config_text` with `kv_heads` (one per layer, 0 for layers without attention) under the keys in
/// `spec`: a number, a list, or query heads per kv head in each layer's object. Every other byte
/// stays. Throws kBadInput if the text has no such objects.
std::string config_with_kv_heads(const std::string& config_text, const ModelSpec& spec,
                                 const std::vector<std::int64_t>& kv_heads);

/// `config_text`, which describes `target` apart from the kv heads, with those of `target` under
/// the keys of all its attentions. If a family's loaders have no such key, it is written only if
/// heads are grouped, or were in `source`. Every other byte stays.
std::string config_with_changed_heads(const std::string& config_text, const ModelSpec& source,
                                      const ModelSpec& target);

/// JSON text: a number if all layers agree, otherwise a list with one entry per layer.
std::string per_layer_json(const std::vector<std::int64_t>& values);

/// The same for all roles: an object keyed by role for encoder-decoder models, otherwise the single
/// role's value.
std::string kv_heads_json(const ModelSpec& spec);

// The inverse of describe_model(): writes a config.json for a given architecture.

/// Architectures that write_config() supports.
std::vector<std::string_view> writable_architectures();

/// A config of that architecture with everything of `spec` that the architecture can express. The
/// caller must check that nothing is lost, by describing the config and comparing. Throws kUsage
/// for an unsupported architecture.
Json write_config(std::string_view architecture, const ModelSpec& spec);

}  // namespace regroup
