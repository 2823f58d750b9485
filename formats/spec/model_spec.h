// A model in one vocabulary for all families: sizes, positions, norms, and the names of its
// tensors. Plain data, filled in by each family's file.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/tensors/checkpoint.h"

namespace regroup {

// How models know positions, and the numbers that each way needs.

enum class PositionKind { kNone, kRope, kLearned, kSinusoidal, kAlibi, kRelativeBias };

/// "rope", "alibi", "learned", "sinusoidal", "t5" or "none".
std::string_view name_of(PositionKind kind);

/// How RoPE frequencies are scaled for contexts longer than in pretraining. The formulas are in
/// formats/spec/alibi.cpp.
struct RopeScaling {
  enum class Kind { kNone, kLinear, kDynamic, kLlama3, kYarn, kLongRope };
  Kind kind = Kind::kNone;
  double factor = 1.0;
  double original_positions = 0.0;  ///< kDynamic: the model's; others: in pretraining
  double low_frequency_factor = 1.0, high_frequency_factor = 4.0;  ///< kLlama3
  double beta_fast = 32.0, beta_slow = 1.0;                        ///< kYarn
  bool truncate = true;                                            ///< kYarn
  double attention_factor = 1.0;  ///< kYarn, kLongRope: multiplies cosine and sine
  /// kLongRope: divisors of each pair's frequency, in sequences of up to original_positions tokens
  /// and in longer ones.
  std::vector<double> short_factors, long_factors;

  bool operator==(const RopeScaling&) const = default;
};

struct RopeSpec {
  double theta = 10000.0;
  std::int64_t rotary_dim = 0;  ///< leading dimensions of each head that are rotated
  bool interleaved = false;     ///< pairs (2i, 2i+1), GPT-J; else (i, i + rotary_dim/2)
  RopeScaling scaling;

  bool operator==(const RopeSpec&) const = default;
};

struct AlibiSpec {
  double bias_max = 8.0;
  bool scaled = false;  ///< Falcon: the bias is divided by √d together with q·k
  /// Explicit slopes recorded by regroup, [layer][query head] or one row for all layers. Empty if
  /// the family's formula applies.
  std::vector<std::vector<double>> slopes;
  std::vector<std::vector<double>> encoder_slopes;  ///< of an encoder-decoder's encoder
};

/// Sinusoidal positions (Vaswani et al. 2017, section 3.5): the embedding of index p is D/2 sines
/// of p · 10000^(-i / steps), then D/2 cosines.
struct SinusoidSpec {
  std::int64_t steps = 0;  ///< D/2; D/2 - 1 in fairseq's models
};

/// Relative position buckets (Raffel et al. 2020, section 2.1).
struct RelativeBiasSpec {
  std::int64_t buckets = 32;
  std::int64_t max_distance = 128;
};

// Names of the stored tensors of one layer, and how heads lie in them.

/// A stored linear layer: `weight` is [out, in], or [in, out] if `input_major` (GPT-2's Conv1D).
struct LinearTensors {
  std::string weight;
  std::string bias;  ///< empty if there is none
  bool input_major = false;

  bool present() const { return !weight.empty(); }
};

struct NormTensors {
  std::string weight;
  std::string bias;  ///< empty if there is none

  bool present() const { return !weight.empty(); }
};

/// How query, key and value heads share the output features of their tensors.
/// H query heads, G kv heads, n = H / G, head dimension d:
enum class Packing {
  kSeparate,       ///< three tensors: q [H·d], k [G·d], v [G·d]
  kQueryKeyValue,  ///< one tensor: q‖k‖v, (H + 2G)·d features
  kPerGroup,       ///< one tensor: G times [n query heads, key, value]; [H, 3, d] when G = H
  kPartitioned,    ///< one tensor: p = gcd(4, G) times [H/p queries, G/p values, G/p keys], CodeGen
};

/// The tensors of one attention in one layer. In fused packings q, k and v name the same tensors.
struct AttentionLayout {
  Packing packing = Packing::kSeparate;
  LinearTensors q, k, v, o;
  /// Norms of queries and keys: one each, or with QkNorm::kPerHead one per head.
  std::vector<NormTensors> q_norms, k_norms;

  bool present() const { return o.present(); }
};

/// The experts of one layer. Each token is computed by those that its router scores highest, and
/// their results are added, weighted by these scores.
struct ExpertTensors {
  std::string router;  ///< [E, D]
  /// Weights without biases: one tensor [out, in] per expert, or if `stacked` one [E, out, in] of
  /// them all. If gate and up name the same tensors, their features are gate‖up.
  std::vector<std::string> gate, up, down;
  bool stacked = false;

  bool present() const { return !router.empty(); }
  bool fused_gate() const { return gate == up; }
};

/// The tensors of one block, in the order of computation.
struct LayerTensors {
  NormTensors attention_norm;  ///< absent in ModernBERT's first layer
  AttentionLayout attention;   ///< absent in layers without attention (Nemotron-NAS)
  std::string relative_bias;   ///< T5: [buckets, H]; empty: the previous layer's is used
  NormTensors cross_norm;      ///< encoder-decoder models: between attention and MLP
  AttentionLayout cross_attention;
  bool without_rope = false;           ///< SmolLM3's NoPE layers: positions do not apply
  bool without_window = false;         ///< the model's sliding window does not apply
  std::int64_t intermediate_size = 0;  ///< if layers differ; 0: the model's
  NormTensors mlp_norm;  ///< absent if the MLP shares attention's input norm (parallel_residual)
  /// NormPlacement::kAround: of what attention and MLP add.
  NormTensors attention_output_norm, mlp_output_norm;
  LinearTensors gate;  ///< absent in ungated MLPs
  LinearTensors up;
  LinearTensors down;
  /// Added to the MLP above, which then is the expert that all tokens share, or absent.
  ExpertTensors experts;
  LinearTensors shared_gate;           ///< [1, D]: its sigmoid scales the shared expert; or absent
  bool shared_gate_is_vector = false;  ///< stored as [D] (GGUF)

  bool has_mlp() const { return up.present() || experts.present(); }

  /// Whether gate and up name the same tensor, whose features are gate‖up.
  bool fused_gate() const { return gate.present() && gate.weight == up.weight; }

  /// All norms except those of queries and keys, in the order of computation.
  std::array<const NormTensors*, 5> norms() const {
    return {&attention_norm, &attention_output_norm, &cross_norm, &mlp_norm, &mlp_output_norm};
  }
  std::array<NormTensors*, 5> norms() {
    return {&attention_norm, &attention_output_norm, &cross_norm, &mlp_norm, &mlp_output_norm};
  }
};

enum class NormKind { kLayerNorm, kRmsNorm };
enum class Activation { kSilu, kGeluErf, kGeluTanh, kRelu, kReluSquared };

/// Where a block applies its norms. f is attention or the MLP.
enum class NormPlacement {
  kBefore,         ///< x + f(norm(x))
  kAfterSublayer,  ///< x + norm(f(x)), OLMo2
  kAfterResidual,  ///< norm(x + f(x)), the original Transformer's
  kAround,         ///< x + norm(f(norm(x))), Gemma 2
};

/// What the norms of queries and keys (before RoPE) normalise over.
enum class QkNorm {
  kNone,
  kSharedAcrossHeads,  ///< each head, with one set of d weights for all
  kPerHead,            ///< each head, with weights of its own
  kProjection,         ///< all heads together, H·d and G·d weights
};

/// Which queries attend to which keys.
enum class AttentionRole {
  kSelf,     ///< self-attention of the only stack, or of an encoder-decoder's decoder
  kCross,    ///< the decoder over the encoder's output
  kEncoder,  ///< self-attention of an encoder-decoder's encoder
};

/// "decoder", "cross" or "encoder".
std::string_view name_of(AttentionRole role);

/// How tokens are given to experts, the same in all layers that have them.
struct ExpertRouting {
  std::int64_t experts = 0;            ///< E; 0: the model has none
  std::int64_t per_token = 0;          ///< experts that compute one token
  std::int64_t intermediate_size = 0;  ///< of each expert
  /// The weights of a token's experts are their shares of the softmax over all experts, divided by
  /// their sum if `normalised` (which equals the softmax over the chosen ones), times `scale`.
  bool normalised = false;
  double scale = 1.0;
  /// Factor of the load-balancing loss in training, and what that loss is computed over. The
  /// formulas are in uptrain/ops/expert_routing.h.
  double balance_weight = 0.0;
  enum class Balance { kAllLayers, kEachLayer, kEachSequence };
  Balance balance = Balance::kAllLayers;
};

/// What encoder-decoders are pretrained on, if it is plain text.
enum class Denoising {
  kNone,            ///< pairs of texts (translations, summaries) or of speech and text
  kSpanCorruption,  ///< T5: hidden spans are predicted after sentinels
  kTextInfilling,   ///< BART: the whole text is predicted, each hidden span is one mask token
};

/// Whisper's encoder reads spectra: two convolutions over time of width 3, the second with stride
/// 2, make what other encoders look up for their tokens.
struct SpectrumInput {
  LinearTensors first, second;  ///< weights [D, bands, 3] and [D, D, 3]
  std::int64_t bands = 0;       ///< of the log-mel spectrum
  std::int64_t positions = 0;   ///< of the encoder

  bool present() const { return first.present(); }
};

struct ModelSpec {
  std::string family;        ///< regroup's family name: "llama", "gpt2", "bloom"
  std::string architecture;  ///< from the config, such as "LlamaForCausalLM"
  /// model_type of the vision or audio model that this language model is a part of ("llava");
  /// otherwise empty. Its other tensors and config keys are not described here.
  std::string whole_model;
  /// Path of the language model's own object in the config, such as "text_config"; empty: the
  /// config itself.
  std::vector<std::string> config_path;

  std::int64_t hidden_size = 0;  ///< D
  std::int64_t query_heads = 0;  ///< H
  std::int64_t head_dim = 0;     ///< d; H·d may differ from D
  std::int64_t intermediate_size = 0;
  std::int64_t vocab_size = 0;
  std::optional<std::int64_t> max_positions;
  /// Whether the model computes longer sequences in a way that is not known here (Qwen-1).
  bool limited_to_positions = false;
  /// G per layer, as the config says; 0 in a layer without attention.
  std::vector<std::int64_t> kv_heads;
  /// The same for an encoder-decoder's cross-attention and encoder; otherwise empty.
  std::vector<std::int64_t> cross_kv_heads, encoder_kv_heads;
  bool causal = true;  ///< false: every position attends to all positions (encoder-only models)

  PositionKind positions = PositionKind::kNone;
  RopeSpec rope;  ///< if positions is kRope
  /// RoPE of the layers with a sliding window, if it differs (Gemma 3, OLMo-3).
  std::optional<RopeSpec> window_rope;
  AlibiSpec alibi;                 ///< if positions is kAlibi
  SinusoidSpec sinusoids;          ///< if positions is kSinusoidal
  RelativeBiasSpec relative_bias;  ///< if positions is kRelativeBias; MPNet has a table as well
  /// Tokens that a query attends to, including itself, in layers that are not without_window. In
  /// models that are not causal, as many after it as before it: |i - j| < window.
  std::optional<std::int64_t> sliding_window;

  NormKind norm = NormKind::kRmsNorm;
  double norm_epsilon = 1e-5;
  NormPlacement norm_placement = NormPlacement::kBefore;
  double norm_weight_offset = 0.0;       ///< added to norm weights: 1 in Gemma and Nemotron
  bool norm_without_parameters = false;  ///< OLMo's norms: no tensors at all
  QkNorm qk_norm = QkNorm::kNone;
  Activation activation = Activation::kSilu;
  ExpertRouting routing;                  ///< if some layers have experts
  bool parallel_residual = false;         ///< x + attention(…) + mlp(…), both computed from x
  std::optional<double> clip_qkv;         ///< clamps queries, keys and values to ± this
  std::optional<double> attention_scale;  ///< factor of q·k; none: 1/√d
  /// Scores and logits x become c · tanh(x / c) (Gemma 2).
  std::optional<double> attention_softcap, logit_softcap;
  bool residual_after_norm = false;  ///< BLOOM's apply_residual_connection_post_layernorm

  double residual_scale = 1.0;      ///< Granite: factor of what attention and MLP add
  double embedding_scale = 1.0;     ///< Gemma: √D
  std::int64_t embedding_size = 0;  ///< width of the embeddings; 0: D
  /// Whether token types, positions and the embedding norm come before project_in, and the head's
  /// transform maps back to the width of the embeddings (ELECTRA); otherwise they have D features.
  bool projected_last = false;
  std::int64_t position_offset = 0;  ///< index of position 0 in the position embedding (OPT: 2)

  std::string token_embedding;
  /// Empty unless positions is kLearned, kSinusoidal with a stored table, which then counts instead
  /// of the formula, or MPNet's kRelativeBias.
  std::string position_embedding;
  std::string encoder_position_embedding;  ///< the encoder's own, in encoder-decoders
  /// Position tensors that are stored but never read. They are kept or dropped together with the
  /// used ones.
  std::vector<std::string> idle_position_tensors;
  std::string token_type_embedding;  ///< BERT: [types, D]; otherwise empty
  std::int64_t token_types = 0;
  NormTensors embedding_norm;          ///< BLOOM, BERT, BART's decoder; otherwise absent
  NormTensors encoder_embedding_norm;  ///< BART's encoder; otherwise absent
  SpectrumInput spectrum;              ///< Whisper; otherwise absent
  LinearTensors project_in;            ///< from the embedding width to D; absent if they are equal
  std::vector<LayerTensors> layers;    ///< the only stack, or the decoder's
  std::vector<LayerTensors> encoder_layers;  ///< empty unless the model is an encoder-decoder
  NormTensors encoder_final_norm;
  NormTensors final_norm;
  LinearTensors project_out;  ///< from D to the embedding width
  /// Factor of the last hidden states, and so of the logits: 1/√D in T5 with tied embeddings.
  double output_scale = 1.0;
  LinearTensors head_transform;  ///< BERT: before activation, norm and the output embedding
  std::optional<Activation> head_activation;  ///< none: the model's
  NormTensors head_norm;
  std::string lm_head;  ///< empty if tied to the token embedding or absent
  /// If the config ties it to the token embedding: its name where it is stored all the same. Then
  /// settle_ties() decides.
  std::string tied_head;
  /// Names of the encoder's and decoder's embeddings, which the config ties to the token embedding.
  std::vector<std::string> tied_lookups;
  /// Sentences on tensors that contradict the config, and what is computed.
  std::vector<std::string> contradictions;
  std::string lm_head_bias;          ///< empty if there is none
  bool lm_head_bias_is_row = false;  ///< stored as [1, V] (BART's final_logits_bias), not as [V]
  /// Whether each row of the output projection is divided by its L2 norm (Baichuan 2).
  bool lm_head_normalised = false;
  /// Tensors that training does not change: transformers keeps them as buffers.
  std::vector<std::string> constant_tensors;

  std::optional<std::int64_t> decoder_start_token;  ///< first input of an encoder-decoder's decoder
  std::optional<std::int64_t> mask_token;           ///< replaces masked tokens
  Denoising denoising = Denoising::kSpanCorruption;  ///< of an encoder-decoder

  /// Path of the config key for the number of kv heads. The keys for cross-attention and an encoder
  /// have the same path with "cross_" and "encoder_" before the last part.
  std::vector<std::string> kv_heads_key = {"num_key_value_heads"};
  /// Paths of config keys that repeat the value at kv_heads_key.
  std::vector<std::vector<std::string>> kv_heads_copies;
  /// Whether its value is a list even if all layers agree (DeciLM-7B).
  bool kv_heads_always_listed = false;
  /// For configs with one object per layer (Nemotron-NAS): the path of the list of objects, and the
  /// path in each object of the key for query heads per kv head. kv_heads_key is then unused.
  /// Otherwise empty.
  std::vector<std::string> layer_configs_key, heads_per_group_key;
  /// Whether the family's stock loaders read these keys, and whether they allow different values
  /// per layer.
  bool loaders_read_kv_heads = false;
  bool loaders_let_layers_differ = false;
  /// A config flag that makes stock loaders use a single kv head ("multi_query"); otherwise empty.
  std::string multi_query_key;

  /// Why uptrain/ cannot compute this model, such as "rope_type yarn"; empty if it can. Inspecting
  /// and converting work regardless.
  std::string not_computable;
  /// Whether stock loaders compute the model even so, from its kv heads alone (Whisper).
  bool loaders_compute = false;

  /// Width of the embeddings: D unless they are projected.
  std::int64_t embedding_width() const { return embedding_size > 0 ? embedding_size : hidden_size; }

  std::int64_t layer_count() const { return static_cast<std::int64_t>(layers.size()); }

  /// The width of one layer's MLP.
  std::int64_t width_of(const LayerTensors& layer) const {
    return layer.intermediate_size > 0 ? layer.intermediate_size : intermediate_size;
  }
  /// The sliding window of one layer.
  std::optional<std::int64_t> window_of(const LayerTensors& layer) const {
    return layer.without_window ? std::nullopt : sliding_window;
  }
  /// Whether the sliding window applies to some of the layers and not to others.
  bool windows_differ() const;
  /// The RoPE of one layer, if positions is kRope and the layer is not without.
  const RopeSpec& rope_of(const LayerTensors& layer) const {
    return window_rope && !layer.without_window ? *window_rope : rope;
  }

  /// Whether only the attention is known, from a layout file.
  bool attention_only() const { return token_embedding.empty(); }

  bool has_encoder() const { return !encoder_layers.empty(); }

  /// Whether positions are rows of a table, so that a sequence can be too long for it.
  bool has_position_table() const {
    return positions == PositionKind::kLearned || positions == PositionKind::kSinusoidal ||
           !position_embedding.empty();
  }

  /// Weights of the experts that do not compute a given token, over all layers.
  std::int64_t idle_expert_weights() const;
  /// The share of all experts' weights that `tokens` tokens use, if these choose independently and
  /// each expert is chosen equally often: 1 - (1 - k/E)^tokens. 1 without experts.
  double share_of_experts(std::uint64_t tokens) const;

  /// The model's attention roles, in the order kEncoder, kSelf, kCross.
  std::vector<AttentionRole> roles() const;
  /// The layers that compute the queries of that role.
  const std::vector<LayerTensors>& stack(AttentionRole role) const;
  /// The attention tensors of that role in one layer.
  const AttentionLayout& attention(AttentionRole role, std::size_t layer) const;
  /// Kv heads per layer in that role, as the config says.
  const std::vector<std::int64_t>& kv_heads_of(AttentionRole role) const;
  std::vector<std::int64_t>& kv_heads_of(AttentionRole role);
  /// Path of the config key for kv heads in that role.
  std::vector<std::string> kv_heads_key_of(AttentionRole role) const;
};

/// Turns `spec` into an ALiBi model: drops other positions and uses the formula's slopes. Throws
/// kUsage if it is an ALiBi model already.
void use_alibi(ModelSpec& spec);

/// The ALiBi slopes [layer][query head] of the stack with self-attention `role` (kSelf or
/// kEncoder): the recorded ones, otherwise the formula's. Cross-attention has none, because
/// positions in two sequences have no distance. Throws kBadInput if recorded slopes do not match
/// layers or heads.
std::vector<std::vector<double>> alibi_slopes_per_layer(const ModelSpec& spec,
                                                        AttentionRole role = AttentionRole::kSelf);

/// The tensors that hold only positions.
std::vector<std::string> position_tensors(const ModelSpec& spec);

/// The kv heads of each layer in one role, derived from tensor shapes: (rows - H·d) / 2d for fused
/// tensors, otherwise k rows / d. A layer without attention gets the config's value. Throws
/// kBadInput naming the tensor if the result is not a whole number.
std::vector<std::int64_t> kv_heads_from_shapes(const ModelSpec& spec, const Checkpoint& tensors,
                                               AttentionRole role = AttentionRole::kSelf);

/// Whether there is no value that differs from another.
template <typename T>
bool all_equal(const std::vector<T>& values) {
  return std::ranges::adjacent_find(values, std::not_equal_to<>()) == values.end();
}

/// Whether all layers with attention have the same number of kv heads.
bool is_uniform(const std::vector<std::int64_t>& kv_heads);

/// `spec` with the kv heads that kv_heads_from_shapes() finds, in every role.
ModelSpec with_stored_heads(const ModelSpec& spec, const Checkpoint& tensors);

/// First output feature of each head of one role in its tensor, in a layer of H query and G kv
/// heads: H entries for queries, G for keys and values. Each head spans d features.
struct HeadFeatures {
  std::vector<std::int64_t> q, k, v;
  std::int64_t q_total = 0, k_total = 0, v_total = 0;  ///< features of the tensors
};
HeadFeatures head_features(Packing packing, std::int64_t query_heads, std::int64_t kv_heads,
                           std::int64_t head_dim);

/// The number of parts in Packing::kPartitioned.
std::int64_t head_partitions(std::int64_t kv_heads);

}  // namespace regroup
