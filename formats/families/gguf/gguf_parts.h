// The optional tensors of llama.cpp's graphs, and the names of all tensors.
#pragma once

#include <cstdint>
#include <span>

#include "formats/checkpoint/checkpoint.h"
#include "formats/families/gguf/gguf_graphs.h"
#include "formats/spec/model_spec.h"

namespace regroup {

/// Which optional tensors of llama.cpp's graphs are present.
struct GgufParts {
  bool fused_qkv = false;  ///< attn_qkv instead of attn_q, attn_k, attn_v
  bool qkv_bias = false;
  bool o_bias = false;
  bool mlp_bias = false;
  bool norm_bias = false;
  bool mlp_norm = false;
  bool second_norm = false;  ///< attn_norm_2
  bool qk_norm = false;
  bool position_embedding = false;
  bool head = false;  ///< output.weight
  bool head_bias = false;
  bool rope_factors = false;      ///< rope_freqs.weight
  bool longrope_factors = false;  ///< rope_factors_long.weight, rope_factors_short.weight
};

/// The parts present in a file.
GgufParts gguf_parts_in(const Checkpoint& checkpoint);

/// The layers before the first one with experts.
std::int64_t leading_dense_layers(const ModelSpec& spec);

/// Sets the names of all tensors of `spec` as in `graph`. The heads of `spec` must be set.
/// `mlp_widths` has one value per layer, 0 for layers without an MLP; if the model has experts, all
/// layers from `dense` on have them.
void name_gguf_tensors(ModelSpec& spec, const GgufGraph& graph, const GgufParts& parts,
                       std::span<const std::int64_t> mlp_widths, std::int64_t dense);

}  // namespace regroup
