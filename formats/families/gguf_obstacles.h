// Why a llama.cpp graph cannot compute a model.
#pragma once

#include <string>

#include "formats/families/gguf_graphs.h"
#include "formats/families/gguf_parts.h"
#include "formats/spec/model_spec.h"

namespace regroup {

/// The parts of `spec` that do not depend on the graph: all except fused_qkv and second_norm.
GgufParts gguf_parts_of(const ModelSpec& spec);

/// The first reason why `graph` cannot compute `spec`, such as "positions alibi, rope needed";
/// empty if it can.
std::string gguf_obstacle(const ModelSpec& spec, const GgufGraph& graph);

}  // namespace regroup
