// Parts of a GGUF model: llama.cpp's graphs, hyperparameters, tensors, positions.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/spec/model_spec.h"
#include "formats/tensors/checkpoint.h"
#include "formats/tensors/gguf_metadata.h"

namespace regroup {

// llama.cpp's graphs, one row each: what they compute and which tensors they load.

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

struct GgufBiases {
  Presence qkv = Presence::kAlways, o = Presence::kAlways;
  Presence mlp = Presence::kAlways, norm = Presence::kAlways;
};

/// One value of general.architecture.
struct GgufGraph {
  std::string_view architecture = {};
  std::string_view family = {};  ///< regroup's family name
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
  GgufBiases biases = {};
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

// A GGUF model's hyper-parameters: the metadata keys under its architecture's name.

/// llama.cpp's limit on the number of layers.
inline constexpr std::int64_t kMaxGgufLayers = 512;
/// The largest value accepted for any size.
inline constexpr std::int64_t kMaxGgufSize = std::int64_t{1} << 31;

/// Reads <architecture>.<name>. Throws kBadInput naming the key for a value of another type or
/// outside the range given.
class GgufHyperparameters {
 public:
  /// `metadata` must outlive this.
  GgufHyperparameters(const GgufMetadata& metadata, std::string_view architecture)
      : metadata_(metadata), prefix_(std::string(architecture) + ".") {}

  std::string key(std::string_view name) const { return prefix_ + std::string(name); }
  const GgufMetadata& metadata() const { return metadata_; }
  const std::string& where() const { return metadata_.where(); }

  /// A number from 1 to kMaxGgufSize.
  std::optional<std::int64_t> optional_count(std::string_view name) const;

  /// The same, at most `most`; throws kBadInput if absent.
  std::int64_t count(std::string_view name, std::int64_t most = kMaxGgufSize) const;

  /// Any number; `absent` if there is none.
  std::int64_t count_or(std::string_view name, std::int64_t absent) const {
    return metadata_.count(key(name)).value_or(absent);
  }

  double number_or(std::string_view name, double absent) const {
    return metadata_.number(key(name)).value_or(absent);
  }

  /// One value for each of `layers`, expanded if the file has a single value. 0 means that the
  /// layer has none.
  std::optional<std::vector<std::int64_t>> per_layer(std::string_view name,
                                                     std::int64_t layers) const;

 private:
  const GgufMetadata& metadata_;
  std::string prefix_;
};

// The optional tensors of llama.cpp's graphs, and the names of all tensors.

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
  bool rope_factors = false;               ///< rope_freqs.weight
  std::vector<double> rope_divisors = {};  ///< its values, if they can be divisors
  bool longrope_factors = false;           ///< rope_factors_long.weight, rope_factors_short.weight
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

// RoPE, ALiBi or learned positions from the hyper-parameters of a GGUF file.

/// Sets the positions of `spec`, whose heads and max_positions must be set. Sets not_computable if
/// a ModelSpec cannot express them. Throws kBadInput for invalid values.
void read_gguf_positions(ModelSpec& spec, const GgufHyperparameters& parameters,
                         const GgufGraph& graph, const GgufParts& parts);

// Why a llama.cpp graph cannot compute a model.

/// The parts of `spec` that do not depend on the graph: all except fused_qkv and second_norm.
GgufParts gguf_parts_of(const ModelSpec& spec);

/// The first reason why `graph` cannot compute `spec`, such as "positions alibi, rope needed";
/// empty if it can.
std::string gguf_obstacle(const ModelSpec& spec, const GgufGraph& graph);

}  // namespace regroup
