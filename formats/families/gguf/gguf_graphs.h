// The graphs of llama.cpp, one row each: what they compute, and which tensors they look for.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "formats/spec/model_spec.h"

namespace regroup {

/// Whether a graph looks for a tensor, and whether it does without.
enum class Presence { kNever, kOptional, kAlways };

/// Whether it is part of a model, `found` telling of a tensor that may be missing.
constexpr bool there(Presence presence, bool found) {
  return presence == Presence::kAlways || (presence == Presence::kOptional && found);
}

/// How a block adds up.
enum class Residual {
  kSequential,
  kParallel,
  kByKey,      ///< parallel where use_parallel_residual says so
  kByMlpNorm,  ///< parallel where the MLP has no norm of its own
};

/// One value of general.architecture.
struct GgufGraph {
  std::string_view architecture;
  std::string_view family;  ///< regroup's name for it
  /// The architecture of a config.json that this graph is preferred for, where several would do.
  std::string_view made_for = {};
  PositionKind positions = PositionKind::kRope;
  NormKind norm = NormKind::kLayerNorm;
  Activation activation = Activation::kGeluTanh;
  Residual residual = Residual::kSequential;
  NormPlacement norm_placement = NormPlacement::kBefore;

  bool gated = false;
  bool interleaved = false;         ///< RoPE turns the pairs (2i, 2i+1)
  bool whole_head_rotates = false;  ///< rope.dimension_count must be the head dimension
  bool free_head_dim = false;       ///< H·d need not be D
  bool per_layer = false;           ///< heads and MLP widths may differ between layers
  bool clips = false;               ///< reads attention.clamp_kqv
  bool max_alibi_bias = false;      ///< reads attention.max_alibi_bias; else 8
  bool embedding_norm = false;
  bool scaled_embedding = false;  ///< by √D
  bool rope_factors = false;      ///< reads rope_freqs.weight
  bool second_norm = false;       ///< attn_norm_2, ahead of attention; attn_norm is the MLP's then
  bool norm_without_parameters = false;

  QkNorm qk_norm = QkNorm::kNone;  ///< where there is one
  Presence qk_norm_tensors = Presence::kNever;
  Presence fused_qkv = Presence::kAlways;  ///< attn_qkv; else attn_q, attn_k, attn_v
  Presence norm_bias = Presence::kAlways;
  Presence qkv_bias = Presence::kAlways;
  Presence o_bias = Presence::kAlways;
  Presence mlp_bias = Presence::kAlways;
  Presence mlp_norm = Presence::kAlways;
  Presence head = Presence::kOptional;  ///< output.weight; else the token embedding
  Presence head_bias = Presence::kNever;
};

std::span<const GgufGraph> gguf_graphs();

/// The graph of that architecture, or null.
const GgufGraph* find_gguf_graph(std::string_view architecture);

}  // namespace regroup
