// RoPE, ALiBi or learned positions from the hyper-parameters of a GGUF file.
#pragma once

#include "formats/families/gguf/gguf_graphs.h"
#include "formats/families/gguf/gguf_hyperparameters.h"
#include "formats/families/gguf/gguf_parts.h"
#include "formats/spec/model_spec.h"

namespace regroup {

/// Sets the positions of `spec`, whose heads and max_positions must be set. Sets not_computable if
/// a ModelSpec cannot express them. Throws kBadInput for invalid values.
void read_gguf_positions(ModelSpec& spec, const GgufHyperparameters& parameters,
                         const GgufGraph& graph, const GgufParts& parts);

}  // namespace regroup
