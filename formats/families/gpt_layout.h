// What GPT-2, GPTBigCode and GPT-J have in common: config keys, and the names around their layers.
#pragma once

#include <string>

#include "formats/families/config_reader.h"
#include "formats/spec/model_spec.h"

namespace regroup {

/// Reads n_embd, n_head, n_layer, n_inner, vocab_size, n_positions, layer_norm_epsilon and
/// activation_function; makes the layers, still without names; names wte and ln_f. Returns the
/// prefix of all names, "transformer." or nothing.
std::string read_gpt_frame(ModelSpec& spec, const ConfigReader& config,
                           const Checkpoint& checkpoint, const std::string& default_activation);

/// Makes positions learned ones, wpe. Throws kBadInput when the config does not say how many.
void use_learned_positions(ModelSpec& spec, const ConfigReader& config, const std::string& prefix);

}  // namespace regroup
