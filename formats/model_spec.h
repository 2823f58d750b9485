// What a model is, in one vocabulary for every family: sizes, positions, norms, and the names
// under which its tensors are stored. Plain data; a family's file fills it in.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/checkpoint.h"

namespace regroup {

enum class PositionKind { kNone, kRope, kLearned, kAlibi };
enum class NormKind { kLayerNorm, kRmsNorm };
enum class Activation { kSilu, kGeluErf, kGeluTanh, kRelu };

/// "rope", "alibi", "learned" or "none".
std::string_view name_of(PositionKind kind);

/// A stored linear map: `weight` is [out, in], or [in, out] where `input_major` (GPT-2's Conv1D).
struct LinearTensors {
  std::string weight;
  std::string bias;  ///< empty where there is none
  bool input_major = false;

  bool present() const { return !weight.empty(); }
};

struct NormTensors {
  std::string weight;
  std::string bias;  ///< empty where there is none

  bool present() const { return !weight.empty(); }
};

/// How query, key and value heads share the output features of their tensors.
/// H query heads, G kv heads, n = H / G, head dimension d:
enum class Packing {
  kSeparate,       ///< three tensors: q [H·d], k [G·d], v [G·d]
  kQueryKeyValue,  ///< one tensor: q‖k‖v, (H + 2G)·d features
  kPerGroup,       ///< one tensor: G times [n query heads, key, value]; [H, 3, d] when G = H
};

/// Where one layer keeps its self-attention. In fused packings q, k and v name the same tensors.
struct AttentionLayout {
  Packing packing = Packing::kSeparate;
  LinearTensors q, k, v, o;
};

/// The tensors of one block, in the order of computation.
struct LayerTensors {
  NormTensors attention_norm;
  AttentionLayout attention;
  NormTensors mlp_norm;
  LinearTensors gate;  ///< absent in plain (not gated) MLPs
  LinearTensors up;
  LinearTensors down;
};

struct RopeSpec {
  double theta = 10000.0;
  std::int64_t rotary_dim = 0;  ///< leading dimensions of each head that rotate
};

struct AlibiSpec {
  double bias_max = 8.0;
  /// Explicit slopes recorded by regroup, [layer][query head] or one row for all layers; empty
  /// where the family's formula holds.
  std::vector<std::vector<double>> slopes;
};

struct ModelSpec {
  std::string family;        ///< regroup's name for it: "llama", "gpt2", "bloom"
  std::string architecture;  ///< the config's, such as "LlamaForCausalLM"

  std::int64_t hidden_size = 0;  ///< D
  std::int64_t query_heads = 0;  ///< H
  std::int64_t head_dim = 0;     ///< d; H·d need not be D
  std::int64_t intermediate_size = 0;
  std::int64_t vocab_size = 0;
  std::optional<std::int64_t> max_positions;
  std::vector<std::int64_t> kv_heads;  ///< G per layer, as the config says

  PositionKind positions = PositionKind::kNone;
  RopeSpec rope;                               ///< where positions is kRope
  AlibiSpec alibi;                             ///< where positions is kAlibi
  std::optional<std::int64_t> sliding_window;  ///< tokens a query sees, itself included

  NormKind norm = NormKind::kRmsNorm;
  double norm_epsilon = 1e-5;
  Activation activation = Activation::kSilu;
  bool residual_after_norm = false;  ///< BLOOM's apply_residual_connection_post_layernorm

  std::string token_embedding;
  std::string position_embedding;  ///< empty unless positions is kLearned
  NormTensors embedding_norm;      ///< BLOOM's; absent elsewhere
  std::vector<LayerTensors> layers;
  NormTensors final_norm;
  std::string lm_head;  ///< empty when tied to the token embedding, or there is none

  /// Path of the config key that holds the number of kv heads.
  std::vector<std::string> kv_heads_key = {"num_key_value_heads"};
  /// Whether the family's stock loaders read that key.
  bool loaders_read_kv_heads = false;

  /// Why uptrain/ cannot compute this model, such as "rope_type yarn"; empty when it can.
  /// Inspecting and converting need no computation and go ahead.
  std::string not_computable;

  std::int64_t layer_count() const { return static_cast<std::int64_t>(layers.size()); }
};

/// ALiBi slopes of every layer in use: the recorded ones, else the formula's. One row per layer.
/// Throws kBadInput when recorded slopes do not fit the heads.
std::vector<std::vector<double>> alibi_slopes_per_layer(const ModelSpec& spec);

/// The kv heads of each layer as the tensors' shapes say: of fused tensors (rows - H·d) / 2d, else
/// k rows / d. Throws kBadInput naming the tensor whose shape allows no whole number of heads.
std::vector<std::int64_t> kv_heads_from_shapes(const ModelSpec& spec, const Checkpoint& tensors);

/// First output feature of each head of one role in its tensor, in a layer of H query and G kv
/// heads: H entries for queries, G for keys and values. Each head spans d features.
struct HeadFeatures {
  std::vector<std::int64_t> q, k, v;
  std::int64_t q_total = 0, k_total = 0, v_total = 0;  ///< features of the tensors they lie in
};
HeadFeatures head_features(Packing packing, std::int64_t query_heads, std::int64_t kv_heads,
                           std::int64_t head_dim);

}  // namespace regroup
