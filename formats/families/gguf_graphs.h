// llama.cpp's graphs, one row each: what they compute and which tensors they load.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "formats/spec/model_spec.h"

namespace regroup {

/// Whether a graph loads a tensor, and whether it is required.
enum class Presence { kNever, kOptional, kAlways };

/// Whether the model has the tensor. `found` decides for optional ones.
constexpr bool there(Presence presence, bool found) {
  return presence == Presence::kAlways || (presence == Presence::kOptional && found);
}

/// The residual structure of a block.
enum class Residual {
  kSequential,
  kParallel,
  kByKey,      ///< parallel if use_parallel_residual is true
  kByMlpNorm,  ///< parallel if the MLP has no norm of its own
};

/// What a graph computes in place of the MLP if expert_count is more than 0.
struct GgufExperts {
  Presence presence = Presence::kNever;
  bool normalised = false;     ///< divides the weights of a token's experts by their sum
  bool own_width = false;      ///< reads expert_feed_forward_length; else feed_forward_length
  bool shared = false;         ///< has an expert that all tokens share
  bool shared_gate = false;    ///< scaled by the sigmoid of ffn_gate_inp_shexp
  bool leading_dense = false;  ///< reads leading_dense_block_count: layers with an MLP
};

/// One value of general.architecture.
struct GgufGraph {
  std::string_view architecture;
  std::string_view family;  ///< regroup's family name
  /// The config.json architecture for which this graph is preferred when several fit.
  std::string_view made_for = {};
  PositionKind positions = PositionKind::kRope;
  NormKind norm = NormKind::kLayerNorm;
  Activation activation = Activation::kGeluTanh;
  Residual residual = Residual::kSequential;
  NormPlacement norm_placement = NormPlacement::kBefore;

  bool gated = false;
  bool fused_gate = false;          ///< ffn_up holds gate‖up
  bool interleaved = false;         ///< RoPE rotates the pairs (2i, 2i+1)
  bool whole_head_rotates = false;  ///< rope.dimension_count must be the head dimension
  bool free_head_dim = false;       ///< H·d may differ from D
  bool per_layer = false;           ///< heads and MLP widths may differ between layers
  bool clips = false;               ///< reads attention.clamp_kqv
  bool max_alibi_bias = false;      ///< reads attention.max_alibi_bias; else 8
  /// If not 0: the numbers of layers with which llama.cpp gives the model ALiBi and RoPE. It stops
  /// at others.
  std::int64_t alibi_layers = 0, rope_layers = 0;
  bool embedding_norm = false;
  bool scaled_embedding = false;   ///< by √D
  bool multipliers = false;        ///< reads Granite's four; its logit_scale divides
  bool logit_scale = false;        ///< reads logit_scale, which multiplies
  std::int64_t no_rope_every = 0;  ///< layers 4, 8, … have no RoPE if this is 4
  bool rope_factors = false;       ///< reads rope_freqs.weight
  bool second_norm = false;  ///< attn_norm_2, before attention; attn_norm then belongs to the MLP
  bool norm_without_parameters = false;
  GgufExperts experts = {};
  bool whole_k_norm = false;  ///< the norm of keys must be as wide as that of queries

  QkNorm qk_norm = QkNorm::kNone;  ///< if there is one
  Presence qk_norm_tensors = Presence::kNever;
  Presence fused_qkv = Presence::kAlways;  ///< attn_qkv; else attn_q, attn_k, attn_v
  Presence norm_bias = Presence::kAlways;
  Presence qkv_bias = Presence::kAlways;
  Presence o_bias = Presence::kAlways;
  Presence mlp_bias = Presence::kAlways;
  Presence mlp_norm = Presence::kAlways;
  Presence head = Presence::kOptional;  ///< output.weight; else the token embedding
  Presence head_bias = Presence::kNever;

  /// The positions of a model of that many layers; none if llama.cpp does not know them.
  constexpr std::optional<PositionKind> positions_with(std::int64_t layers) const {
    return alibi_layers == 0        ? std::optional(positions)
           : layers == alibi_layers ? std::optional(PositionKind::kAlibi)
           : layers == rope_layers  ? std::optional(PositionKind::kRope)
                                    : std::nullopt;
  }

  constexpr bool lacks_rope(std::size_t layer) const {
    return no_rope_every > 0 && (static_cast<std::int64_t>(layer) + 1) % no_rope_every == 0;
  }
};

std::span<const GgufGraph> gguf_graphs();

/// The graph of that architecture, or null.
const GgufGraph* find_gguf_graph(std::string_view architecture);

}  // namespace regroup
