// What keeps a graph of llama.cpp from computing a model.
#pragma once

#include <string>

#include "formats/families/gguf/gguf_graphs.h"
#include "formats/families/gguf/gguf_parts.h"
#include "formats/spec/model_spec.h"

namespace regroup {

/// The parts that `spec` itself has, whatever the graph: all but fused_qkv and second_norm.
GgufParts gguf_parts_of(const ModelSpec& spec);

/// Why `graph` cannot compute `spec`: the first thing that is in the way, such as "positions alibi,
/// rope needed"; empty where nothing is.
std::string gguf_obstacle(const ModelSpec& spec, const GgufGraph& graph);

}  // namespace regroup
