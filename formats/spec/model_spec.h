// What a model is, in one vocabulary for every family: sizes, positions, norms, and the names
// under which its tensors are stored. Plain data; a family's file fills it in.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/checkpoint/checkpoint.h"

namespace regroup {

enum class PositionKind { kNone, kRope, kLearned, kAlibi, kRelativeBias };
enum class NormKind { kLayerNorm, kRmsNorm };
enum class Activation { kSilu, kGeluErf, kGeluTanh, kRelu, kReluSquared };

/// Where a block's norms stand. f is attention or the MLP.
enum class NormPlacement {
  kBefore,         ///< x + f(norm(x))
  kAfterSublayer,  ///< x + norm(f(x)), OLMo2
  kAfterResidual,  ///< norm(x + f(x)), the first Transformer's
};

/// What the norms of queries and keys, ahead of RoPE, span.
enum class QkNorm {
  kNone,
  kSharedAcrossHeads,  ///< each head, with one set of d weights for all
  kPerHead,            ///< each head, with weights of its own
  kProjection,         ///< all heads together, H·d and G·d weights
};

/// "rope", "alibi", "learned", "t5" or "none".
std::string_view name_of(PositionKind kind);

/// Which queries look at which keys.
enum class AttentionRole {
  kSelf,     ///< a model's only stack, or in an encoder-decoder the decoder, at itself
  kCross,    ///< the decoder at the encoder's output
  kEncoder,  ///< the encoder at itself
};

/// "decoder", "cross" or "encoder".
std::string_view name_of(AttentionRole role);

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

/// Where one layer keeps one attention. In fused packings q, k and v name the same tensors.
struct AttentionLayout {
  Packing packing = Packing::kSeparate;
  LinearTensors q, k, v, o;
  /// Norms of queries and keys: one each, or with QkNorm::kPerHead one per head.
  std::vector<NormTensors> q_norms, k_norms;

  bool present() const { return o.present(); }
};

/// The tensors of one block, in the order of computation.
struct LayerTensors {
  NormTensors attention_norm;
  AttentionLayout attention;  ///< absent in layers pruned of it (Nemotron-NAS)
  std::string relative_bias;  ///< [buckets, H] of T5; empty: that of the layer before
  NormTensors cross_norm;     ///< encoder-decoder models: between attention and MLP
  AttentionLayout cross_attention;
  std::int64_t intermediate_size = 0;  ///< where layers differ in it; 0: the model's
  NormTensors mlp_norm;  ///< absent where the MLP reads what attention reads (parallel_residual)
  LinearTensors gate;    ///< absent in plain (not gated) MLPs
  LinearTensors up;
  LinearTensors down;
};

/// How frequencies change for contexts beyond those of pretraining; the formulas are in
/// formats/spec/rope_frequencies.cpp.
struct RopeScaling {
  enum class Kind { kNone, kLinear, kDynamic, kLlama3, kYarn };
  Kind kind = Kind::kNone;
  double factor = 1.0;
  double original_positions = 0.0;  ///< kDynamic: the model's; kLlama3, kYarn: of pretraining
  double low_frequency_factor = 1.0, high_frequency_factor = 4.0;  ///< kLlama3
  double beta_fast = 32.0, beta_slow = 1.0;                        ///< kYarn
  bool truncate = true;                                            ///< kYarn
  double attention_factor = 1.0;                                   ///< kYarn: of cosine and sine
};

struct RopeSpec {
  double theta = 10000.0;
  std::int64_t rotary_dim = 0;  ///< leading dimensions of each head that rotate
  bool interleaved = false;     ///< pairs (2i, 2i+1), GPT-J; else (i, i + rotary_dim/2)
  RopeScaling scaling;
};

struct AlibiSpec {
  double bias_max = 8.0;
  bool scaled = false;  ///< Falcon: the bias is divided by √d together with q·k
  /// Explicit slopes recorded by regroup, [layer][query head] or one row for all layers; empty
  /// where the family's formula holds.
  std::vector<std::vector<double>> slopes;
  std::vector<std::vector<double>> encoder_slopes;  ///< the same of an encoder beside a decoder
};

/// Relative position buckets (Raffel et al. 2020, section 2.1).
struct RelativeBiasSpec {
  std::int64_t buckets = 32;
  std::int64_t max_distance = 128;
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
  /// G per layer, as the config says; 0 in a layer without attention.
  std::vector<std::int64_t> kv_heads;
  /// The same for an encoder-decoder's cross-attention and encoder; empty elsewhere.
  std::vector<std::int64_t> cross_kv_heads, encoder_kv_heads;
  bool causal = true;  ///< false: every position sees all of them (encoder-only models)

  PositionKind positions = PositionKind::kNone;
  RopeSpec rope;                               ///< where positions is kRope
  AlibiSpec alibi;                             ///< where positions is kAlibi
  RelativeBiasSpec relative_bias;              ///< where positions is kRelativeBias
  std::optional<std::int64_t> sliding_window;  ///< tokens a query sees, itself included

  NormKind norm = NormKind::kRmsNorm;
  double norm_epsilon = 1e-5;
  NormPlacement norm_placement = NormPlacement::kBefore;
  double norm_weight_offset = 0.0;       ///< added to norm weights: 1 in Gemma and Nemotron
  bool norm_without_parameters = false;  ///< OLMo's norms: no tensors at all
  QkNorm qk_norm = QkNorm::kNone;
  Activation activation = Activation::kSilu;
  bool parallel_residual = false;         ///< x + attention(…) + mlp(…), both from the same x
  std::optional<double> clip_qkv;         ///< queries, keys and values are clamped to ± this
  std::optional<double> attention_scale;  ///< of q·k; 1/√d where there is none
  bool residual_after_norm = false;       ///< BLOOM's apply_residual_connection_post_layernorm

  double embedding_scale = 1.0;      ///< Gemma: √D
  std::int64_t embedding_size = 0;   ///< width of the embeddings; 0: D
  std::int64_t position_offset = 0;  ///< rows of the position embedding before position 0 (OPT: 2)

  std::string token_embedding;
  std::string position_embedding;  ///< empty unless positions is kLearned
  /// Position tensors that are stored and never read: they stay and go with those that are.
  std::vector<std::string> idle_position_tensors;
  std::string token_type_embedding;  ///< BERT's, [types, D]; empty elsewhere
  std::int64_t token_types = 0;
  NormTensors embedding_norm;        ///< BLOOM's and BERT's; absent elsewhere
  LinearTensors project_in;          ///< from the embeddings' width to D; absent where they agree
  std::vector<LayerTensors> layers;  ///< the only stack, or the decoder's
  std::vector<LayerTensors> encoder_layers;  ///< empty unless there is an encoder beside it
  NormTensors encoder_final_norm;
  NormTensors final_norm;
  LinearTensors project_out;     ///< back from D
  double output_scale = 1.0;     ///< of the last hidden states: 1/√D in T5 with tied embeddings
  LinearTensors head_transform;  ///< BERT: ahead of the output embedding, then activation and norm
  std::optional<Activation> head_activation;  ///< the model's where there is none
  NormTensors head_norm;
  std::string lm_head;       ///< empty when tied to the token embedding, or there is none
  std::string lm_head_bias;  ///< empty where there is none

  std::optional<std::int64_t>
      decoder_start_token;                 ///< what an encoder-decoder's decoder reads first
  std::optional<std::int64_t> mask_token;  ///< what stands for a masked token

  /// Path of the config key that holds the number of kv heads. Cross-attention's and an encoder's
  /// stand beside it, with "cross_" and "encoder_" before the last part.
  std::vector<std::string> kv_heads_key = {"num_key_value_heads"};
  /// Whether its value is a list even where all layers agree (DeciLM-7B).
  bool kv_heads_always_listed = false;
  /// Where a config describes each layer in an object of its own (Nemotron-NAS): the path of the
  /// list of them, and in each object that of the key for query heads per kv head. kv_heads_key is
  /// of no use then. Empty elsewhere.
  std::vector<std::string> layer_configs_key, heads_per_group_key;
  /// Whether the family's stock loaders read these keys, and whether they let layers differ.
  bool loaders_read_kv_heads = false;
  bool loaders_let_layers_differ = false;
  /// A config flag by which stock loaders take one kv head for all ("multi_query"); empty
  /// elsewhere.
  std::string multi_query_key;

  /// Why uptrain/ cannot compute this model, such as "rope_type yarn"; empty when it can.
  /// Inspecting and converting need no computation and go ahead.
  std::string not_computable;

  /// Width of the embeddings, D unless they are projected.
  std::int64_t embedding_width() const { return embedding_size > 0 ? embedding_size : hidden_size; }

  std::int64_t layer_count() const { return static_cast<std::int64_t>(layers.size()); }

  /// Whether nothing but its attention is known: described by a layout file.
  bool attention_only() const { return token_embedding.empty(); }

  bool has_encoder() const { return !encoder_layers.empty(); }

  /// The roles there are, in the order kEncoder, kSelf, kCross.
  std::vector<AttentionRole> roles() const;
  /// The layers whose queries ask in that role.
  const std::vector<LayerTensors>& stack(AttentionRole role) const;
  /// Where a layer of that stack keeps it.
  const AttentionLayout& attention(AttentionRole role, std::size_t layer) const;
  /// Kv heads per layer of that stack, as the config says.
  const std::vector<std::int64_t>& kv_heads_of(AttentionRole role) const;
  std::vector<std::int64_t>& kv_heads_of(AttentionRole role);
  /// Path of the config key for kv heads in that role.
  std::vector<std::string> kv_heads_key_of(AttentionRole role) const;
};

/// Makes an ALiBi model of it: other positions are dropped, the formula's slopes hold. Throws
/// kUsage where it is one already.
void use_alibi(ModelSpec& spec);

/// ALiBi slopes in use in the stack that looks at itself in `role`, kSelf or kEncoder: the recorded
/// ones, else the formula's. One row per layer, one slope per query head. Cross-attention has none:
/// the positions of two sequences have no distance. Throws kBadInput when recorded slopes do not
/// fit layers or heads.
std::vector<std::vector<double>> alibi_slopes_per_layer(const ModelSpec& spec,
                                                        AttentionRole role = AttentionRole::kSelf);

/// The tensors that hold nothing but positions.
std::vector<std::string> position_tensors(const ModelSpec& spec);

/// The kv heads of each layer in one role as the tensors' shapes say: of fused tensors
/// (rows - H·d) / 2d, else k rows / d. A layer without attention has as many as the config says.
/// Throws kBadInput naming the tensor whose shape allows no whole number of heads.
std::vector<std::int64_t> kv_heads_from_shapes(const ModelSpec& spec, const Checkpoint& tensors,
                                               AttentionRole role = AttentionRole::kSelf);

/// `spec` with the kv heads that kv_heads_from_shapes() finds, in every role.
ModelSpec with_stored_heads(const ModelSpec& spec, const Checkpoint& tensors);

/// First output feature of each head of one role in its tensor, in a layer of H query and G kv
/// heads: H entries for queries, G for keys and values. Each head spans d features.
struct HeadFeatures {
  std::vector<std::int64_t> q, k, v;
  std::int64_t q_total = 0, k_total = 0, v_total = 0;  ///< features of the tensors they lie in
};
HeadFeatures head_features(Packing packing, std::int64_t query_heads, std::int64_t kv_heads,
                           std::int64_t head_dim);

}  // namespace regroup
