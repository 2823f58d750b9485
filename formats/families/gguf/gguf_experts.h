// The experts of a GGUF file: from its metadata, and whether a graph computes them.
#pragma once

#include <cstdint>
#include <string>

#include "formats/families/gguf/gguf_graphs.h"
#include "formats/families/gguf/gguf_hyperparameters.h"
#include "formats/spec/model_spec.h"

namespace regroup {

/// Reads how tokens are given to experts, and the width of the expert that all share. Returns the
/// number of leading layers without experts. Throws kBadInput for impossible values.
std::int64_t read_gguf_experts(ModelSpec& spec, const GgufHyperparameters& parameters,
                               const GgufGraph& graph);

/// The reason why `graph` cannot compute the experts of `spec`, or an empty text.
std::string obstacle_in_experts(const ModelSpec& spec, const GgufGraph& graph);

}  // namespace regroup
