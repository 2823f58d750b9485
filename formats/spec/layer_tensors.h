// Names of the stored tensors of one layer, and how heads lie in them.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace regroup {

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

}  // namespace regroup
