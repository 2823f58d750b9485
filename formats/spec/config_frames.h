// The parts that the configs of several architectures share, for config_writers.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "formats/base/json.h"
#include "formats/spec/model_spec.h"

namespace regroup {

/// transformers' name for an activation.
std::string config_activation(Activation activation);

/// Whether any layer has biases in its attention or its MLP. Not every layer has both parts.
bool has_attention_biases(const ModelSpec& spec);
bool has_mlp_biases(const ModelSpec& spec);

/// Whether every layer has `kv_heads` kv heads.
bool all_grouped_as(const ModelSpec& spec, std::int64_t kv_heads);

/// The number of kv heads, or a list if it differs between layers.
Json config_kv_heads(const ModelSpec& spec);

/// Adds "num_key_value_heads" where heads are grouped, for architectures without a key of their
/// own.
void add_kv_heads(Json& config, const ModelSpec& spec);

/// The fraction of a head's dimensions that RoPE rotates.
double rotary_fraction(const ModelSpec& spec);

/// The keys that all architectures share.
Json begin_config(std::string_view model_type, std::string_view architecture,
                  const ModelSpec& spec);

/// The keys that Llama and its relatives share.
Json llama_frame(std::string_view model_type, std::string_view architecture, const ModelSpec& spec);

/// The keys that GPT-2 and its relatives share.
Json gpt_frame(std::string_view model_type, std::string_view architecture, const ModelSpec& spec);

}  // namespace regroup
