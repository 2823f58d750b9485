// Shared by GPT-2, GPTBigCode and GPT-J: config keys, and the tensor names outside the layers.
#pragma once

#include <string>

#include "formats/spec/config_reader.h"
#include "formats/spec/model_spec.h"

namespace regroup {

/// Reads n_embd, n_head, n_layer, n_inner, vocab_size, n_positions, layer_norm_epsilon and
/// activation_function; creates the layers without tensor names; names wte and ln_f. Returns the
/// prefix of all tensor names, "transformer." or "".
std::string read_gpt_frame(ModelSpec& spec, const ConfigReader& config,
                           const Checkpoint& checkpoint, const std::string& default_activation);

/// Sets learned positions (wpe). Throws kBadInput if the config lacks their number.
void use_learned_positions(ModelSpec& spec, const ConfigReader& config, const std::string& prefix);

}  // namespace regroup
