// One function per family: config and tensor names in, ModelSpec out.
#pragma once

#include "formats/checkpoint.h"
#include "formats/families/config_reader.h"
#include "formats/model_spec.h"

namespace regroup {

/// Llama, Mistral, Qwen2: separate q, k, v, o; RoPE; RMSNorm; gated MLP.
ModelSpec describe_llama(const ConfigReader& config, const Checkpoint& checkpoint);

/// GPT-2: fused q‖k‖v stored input-major (Conv1D); learned positions; LayerNorm; tied.
ModelSpec describe_gpt2(const ConfigReader& config, const Checkpoint& checkpoint);

/// BLOOM: fused [H, 3, d]; ALiBi; LayerNorm, also after the embedding; tied.
ModelSpec describe_bloom(const ConfigReader& config, const Checkpoint& checkpoint);

}  // namespace regroup
