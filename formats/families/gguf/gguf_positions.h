// RoPE, ALiBi or learned positions, as the hyper-parameters of a GGUF file give them.
#pragma once

#include "formats/families/gguf/gguf_graphs.h"
#include "formats/families/gguf/gguf_hyperparameters.h"
#include "formats/families/gguf/gguf_parts.h"
#include "formats/spec/model_spec.h"

namespace regroup {

/// Sets the positions of `spec`, whose heads and max_positions are known; not_computable where they
/// are of a kind that has no place in a ModelSpec. Throws kBadInput for impossible values.
void read_gguf_positions(ModelSpec& spec, const GgufHyperparameters& parameters,
                         const GgufGraph& graph, const GgufParts& parts);

}  // namespace regroup
