// How many kv heads a model has, as JSON: by itself, and in its config.json as its family spells
// that.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "formats/spec/model_spec.h"

namespace regroup {

/// `config_text` with `kv_heads` (one number per layer, 0 where there is no attention) under the
/// keys that the spec names: one number or a list, or query heads per kv head in each layer's own
/// object. Every other byte stays. Throws kBadInput where the text has no such objects.
std::string config_with_kv_heads(const std::string& config_text, const ModelSpec& spec,
                                 const std::vector<std::int64_t>& kv_heads);

/// JSON text: a number where all layers agree, else a list with one per layer.
std::string per_layer_json(const std::vector<std::int64_t>& values);

/// The same of every role: an object by role in encoder-decoder models, else that of the only one.
std::string kv_heads_json(const ModelSpec& spec);

}  // namespace regroup
