// Config reading and checks shared by most families.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

#include "formats/config/config_reader.h"
#include "formats/spec/model_spec.h"

namespace regroup {

/// The number of layers, checked against the checkpoint before anything is allocated.
std::int64_t read_layer_count(const ConfigReader& config, ConfigReader::Keys keys,
                              const Checkpoint& checkpoint);

/// Sets query_heads, and head_dim to `explicit_head_dim` or else hidden_size / query_heads, which
/// must then be a whole number.
void set_heads(ModelSpec& spec, const ConfigReader& config, ConfigReader::Keys heads_keys,
               std::optional<std::int64_t> explicit_head_dim);

/// Reads what many families name alike: the number of layers (under `layers_keys`), vocab_size,
/// max_position_embeddings, and num_key_value_heads, as many as the query heads unless given. Call
/// set_heads() before. Throws kBadInput for missing and impossible values.
void read_stack_sizes(ModelSpec& spec, const ConfigReader& config, ConfigReader::Keys layers_keys,
                      const Checkpoint& checkpoint);

/// Lets positions begin at row `rows` of the table of positions, whose size spec.max_positions is.
/// Throws kBadInput if none is left.
void skip_first_positions(ModelSpec& spec, const ConfigReader& config, std::int64_t rows);

/// The first of the given prefixes under which `name` is stored; the first prefix if none matches.
std::string find_prefix(const Checkpoint& checkpoint,
                        std::initializer_list<std::string_view> prefixes, std::string_view name);

/// Names the output projection, which is stored as `name`. If tie_word_embeddings is true (`tied`
/// where it is absent), settle_ties() in formats/spec/head.h decides whether it is one of its own.
void name_output(ModelSpec& spec, const ConfigReader& config, const std::string& name, bool tied);

/// Names the bias of an output projection that loaders add as `used` and tie to `tied` together
/// with the weight. Call name_output() before.
void name_output_bias(ModelSpec& spec, const Checkpoint& checkpoint, const std::string& used,
                      const std::string& tied);

/// Parses a config's activation name; throws kBadInput for unknown ones.
Activation activation_from_name(const std::string& name, const std::string& where);

/// A linear layer or norm stored as `name`.weight and, if `bias`, `name`.bias.
LinearTensors linear_at(const std::string& name, bool bias);
NormTensors norm_at(const std::string& name, bool bias);

}  // namespace regroup
