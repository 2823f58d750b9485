// The checks that most families' files begin with.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

#include "formats/families/config_reader.h"
#include "formats/spec/model_spec.h"

namespace regroup {

/// The number of layers, checked against the checkpoint before anything is allocated for them.
std::int64_t read_layer_count(const ConfigReader& config, ConfigReader::Keys keys,
                              const Checkpoint& checkpoint);

/// Sets query_heads and head_dim: `explicit_head_dim`, or hidden_size / query_heads, which must
/// then come out whole.
void set_heads(ModelSpec& spec, const ConfigReader& config, ConfigReader::Keys heads_keys,
               std::optional<std::int64_t> explicit_head_dim);

/// The prefix, of those given, under which `name` is stored; the first one if there is none.
std::string find_prefix(const Checkpoint& checkpoint,
                        std::initializer_list<std::string_view> prefixes, std::string_view name);

/// The activation of a config's name for it; throws kBadInput for an unknown one.
Activation activation_from_name(const std::string& name, const std::string& where);

/// A linear map or norm stored as `name`.weight and, if asked for, `name`.bias.
LinearTensors linear_at(const std::string& name, bool bias);
NormTensors norm_at(const std::string& name, bool bias);

}  // namespace regroup
