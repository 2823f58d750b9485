// Checkpoints whose weights are quantised, in the ways that transformers reads.
#pragma once

#include "formats/checkpoint/checkpoint.h"
#include "formats/config/config_reader.h"

namespace regroup {

/// Throws kBadInput, saying what to use instead, if `config` (or the object of a language model in
/// it) or the names in `checkpoint` show that weights are quantised.
void refuse_quantised(const ConfigReader& config, const Checkpoint& checkpoint);

}  // namespace regroup
