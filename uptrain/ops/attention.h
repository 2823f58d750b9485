// Attention: masks, biases, grouped heads, and how the work is split.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <utility>

#include <ATen/core/Tensor.h>

#include "formats/spec/model_spec.h"

namespace regroup {

/// Undefined tensors as LibTorch's operations take them.
inline std::optional<at::Tensor> if_defined(const at::Tensor& tensor) {
  return tensor.defined() ? std::optional(tensor) : std::nullopt;
}

/// The type in which numbers like those of x are summed: fp32, or fp64 for fp64.
inline at::ScalarType wide_type(const at::Tensor& x) {
  return x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

// Attention over heads. With fewer kv heads than query heads (GQA), keys and values are not
// repeated in memory, except for fp32 on GPUs.
//
// Shapes: B sequences, T queries, S keys (T of them in self-attention), H query heads, G kv heads,
// d head dimension. In causal self-attention with S > T, queries are those of the last T positions.

/// The heads of one layer: q [B, H, T, d], k and v [B, G, S, d].
struct Heads {
  at::Tensor q, k, v;
};

/// The scale of q·k: 1/√d unless given. q: [B, H, T, d].
double scale_of(const at::Tensor& q, std::optional<double> scale);

/// Splits the output features of a fused projection, [B, T, (H + 2G)·d], into heads.
Heads split_fused_heads(const at::Tensor& features, Packing packing, std::int64_t query_heads,
                        std::int64_t kv_heads, std::int64_t head_dim);

/// Splits the output features of one role's own projection: [B, T, n·d] -> [B, n, T, d].
at::Tensor split_heads(const at::Tensor& features, std::int64_t head_dim);

/// The inverse of split_heads: [B, n, T, d] -> [B, T, n·d].
at::Tensor merge_heads(const at::Tensor& heads);

/// A tensor like `heads` [B, n, T, d], stored as [B, T, n, d], the layout of projections.
at::Tensor empty_heads(const at::Tensor& heads);

/// The mask that hides keys, of `options`: -inf where `hidden`, bool [T, S], is set, else 0; [1, 1,
/// T, S].
at::Tensor hiding_mask(const at::Tensor& hidden, const at::TensorOptions& options);

/// A sliding window: a query sees itself and the width-1 positions before it, and if it is not
/// causal also those after it. Queries are computed in blocks, each with the keys that it may see.
/// Time grows with T·(width + block), and a mask holds block·(width + block) numbers. All blocks of
/// all layers share the masks, which the first calls make, so no two threads may use one object.
class SlidingWindow {
 public:
  /// `width`: at least 1. `options`: dtype and device of the queries.
  SlidingWindow(std::int64_t width, const at::TensorOptions& options, bool causal = true);

  std::int64_t width() const { return width_; }
  bool causal() const { return causal_; }
  /// Queries of a block, a multiple of eight.
  std::int64_t block() const { return block_; }
  /// Keys before a block that belong to it: width-1, rounded up to a multiple of eight, so that
  /// rows of the mask are aligned as CUDA's kernels want them.
  std::int64_t lead() const { return lead_; }
  /// Keys after a block that belong to it.
  std::int64_t tail() const { return causal_ ? 0 : lead_; }
  /// Keys of a whole block.
  std::int64_t keys() const { return lead_ + block_ + tail(); }

  /// The additive mask of `count` queries of a block, repeated `copies` times: [1, 1, copies·count,
  /// keys].
  at::Tensor mask(std::int64_t count, std::int64_t copies);

 private:
  std::int64_t width_, block_, lead_;
  bool causal_;
  at::TensorOptions options_;
  std::map<std::pair<std::int64_t, std::int64_t>, at::Tensor> masks_;
};

/// softmax(scale · q kᵀ) v within the window -> [B, H, T, d]; `scale` is 1/√d unless given. S = T
/// if the window is not causal.
at::Tensor attend_in_window(const Heads& heads, SlidingWindow& window,
                            std::optional<double> scale = std::nullopt);

/// softmax(scale · q kᵀ + mask) v -> [B, H, T, d]; `scale` is 1/√d unless given. mask: [1, 1 or H,
/// T, S]; if it is undefined, keys after a query are hidden when `causal` is set.
at::Tensor attend(const Heads& heads, const at::Tensor& mask,
                  std::optional<double> scale = std::nullopt, bool causal = true);

/// How ALiBi's bias reaches the attention kernel; the results are equal up to rounding.
enum class AlibiForm {
  kBias,             ///< as a bias [1, H, 1, T]: exact, supported by the CPU kernel
  kExtraDimensions,  ///< as eight more dimensions of q and k: any flash kernel, O(T) memory
};

/// ALiBi's bias in bidirectional attention: -slope·|i - j| for key j and query i, [1, H, T, T], the
/// mask of attend(). slopes: fp64 [1, H, 1, 1]; `options`: dtype and device of the queries. |i - j|
/// is a matrix of full rank, so extra dimensions of q and k cannot express it, unlike the causal
/// bias. Rounding a bias b to bf16 changes a key's weight by |b|·exp(b)/512 at most, less than
/// 0.001 of the largest.
at::Tensor symmetric_alibi_bias(const at::Tensor& slopes, std::int64_t length,
                                const at::TensorOptions& options);

/// Causal ALiBi for one layer. The bias slope·(j - i) of key j and query i equals slope·j under
/// softmax. Press et al., https://arxiv.org/abs/2108.12409
class Alibi {
 public:
  /// `slopes`: one per query head. `options`: dtype and device of the queries to come. `scale`: of
  /// q·k, 1/√d unless given; the bias is not scaled.
  Alibi(std::span<const double> slopes, std::int64_t head_dim, const at::TensorOptions& options,
        std::optional<double> scale = std::nullopt);

  /// The same with permuted heads: head order[i] in place i.
  Alibi in_order(const at::Tensor& order) const;

  /// The form that is fast on `device`.
  static AlibiForm best_form(at::Device device);

  /// slope·j for keys at positions j, int64 [S] -> [1, H, 1, S] in fp32 at least.
  at::Tensor bias(const at::Tensor& positions) const;

  /// How many dimensions extended() adds.
  static constexpr std::int64_t kMoreDimensions = 8;
  /// The dimensions that extended() adds to keys at positions j below 65,536, int64 [S] -> [S, 8],
  /// with the dtype and device of `options`.
  static at::Tensor key_dimensions(const at::Tensor& positions, const at::TensorOptions& options);
  /// The same bias as more dimensions of q, k and v; the attention output has them, too.
  /// key_dimensions: of the keys' positions, without gradients.
  Heads extended(const Heads& heads, const at::Tensor& key_dimensions) const;

  /// The scale of q·k.
  double scale() const { return scale_; }

  /// softmax(scale · q kᵀ + bias) v -> [B, H, T, d], within a sliding window unless it is null, as
  /// in attend_in_window(). A window is computed as kExtraDimensions.
  at::Tensor attend(const Heads& heads, AlibiForm form, SlidingWindow* window = nullptr) const;

 private:
  at::Tensor attend_with_bias(const Heads& heads) const;

  at::Tensor slopes_;            // [1, H, 1, 1], fp32 (fp64 for fp64 queries)
  at::Tensor query_dimensions_;  // [1, H, 1, 8], in the queries' dtype
  double scale_;                 // of q·k
};

// Attention on a CPU in parts, between which a request to stop is seen. Passes with gradients are
// steps of a training, which are not stopped; GPUs are fast enough.

/// Whether a single head takes a CPU longer than a fraction of a second.
bool is_long(const Heads& heads);

// Attention in which the query heads of a group become rows of one matrix. Each key and value is
// read once per group and never repeated. Kernels without support for grouped heads can be used.

/// [B, H, T, d] -> [B, G, H/G·T, d]: the rows of a group are its heads, and in each head its
/// tokens.
at::Tensor fold_queries(const at::Tensor& q, std::int64_t groups);

/// The same of a mask, [1, 1 or H, T, S] -> [1, 1 or G, H/G·T, S]; undefined stays undefined.
at::Tensor fold_mask(const at::Tensor& mask, std::int64_t query_heads, std::int64_t groups);

/// softmax(scale · q kᵀ + mask) v -> [B, H, T, d]; `scale` is 1/√d unless given. mask: [1, 1 or H,
/// T, S] or undefined.
at::Tensor attend_in_groups(const Heads& heads, const at::Tensor& mask,
                            std::optional<double> scale);

// Causal attention of the last positions of sequences to all of them: T queries, S keys, S > T.

/// softmax(scale · q kᵀ + bias) v -> [B, H, T, d], where query i sees keys 0 … S - T + i. bias: per
/// key, [1, H, 1, S], without gradients, on CPUs only; or undefined. Elsewhere heads are bf16 or
/// fp16. Extra memory is linear in T and S.
///
/// Kernels align causal masks at the first query and the first key. So one call computes the
/// earlier keys, which all queries see, and another the last T, which are aligned. The results are
/// merged by the logarithms of their sums (Liu et al. 2023, https://arxiv.org/abs/2310.01889,
/// section 3). The merged results give the exact gradients of both calls.
at::Tensor attend_suffix(const Heads& heads, double scale, const at::Tensor& bias = {});

// Soft-capped numbers, c · tanh(x / c), and attention with soft-capped scores. Gemma 2,
// https://arxiv.org/abs/2408.00118, section 2.

/// c · tanh(x / c); x itself if there is no cap.
at::Tensor softcapped(const at::Tensor& x, std::optional<double> cap);

struct SoftcapAttention {
  double cap = 0.0;
  std::optional<double> scale = std::nullopt;  ///< of q·k; none: 1/√d
  bool causal = true;                          ///< keys after a query are hidden; see above
  std::optional<std::int64_t> window =
      std::nullopt;      ///< with `causal`: keys that a query sees, itself included
  at::Tensor mask = {};  ///< [1, 1, T, S], without gradients; or undefined
};

/// softmax(softcapped(scale · q kᵀ) + mask) v -> [B, H, T, d]. No fused kernel computes it: queries
/// are taken in blocks, also in the backward pass, which computes scores again. Memory grows with
/// T + S.
at::Tensor attend_softcapped(const Heads& heads, const SoftcapAttention& attention);

// bf16 attention on CPUs with bf16 matrix kernels: oneDNN products of small tiles, with softmax
// between them while they are in cache. LibTorch's own kernel uses MKL's products, which widen bf16
// to fp32 on non-Intel processors.

/// Whether attend_in_tiles() supports these: bf16 on such a CPU, at least 64 queries, a multiple of
/// 16 dimensions.
bool can_attend_in_tiles(const Heads& heads);

struct TiledAttention {
  double scale = 1.0;  ///< of q·k
  bool causal = true;  ///< query i sees keys 0 … S - T + i; S ≥ T
  at::Tensor bias;     ///< per key, fp32 [1, H, 1, S], without gradients; or undefined
};

/// softmax(scale · q kᵀ + bias) v -> [B, H, T, d], stored as [B, T, H, d]. Scores, softmax and sums
/// are fp32, products have bf16 factors. Extra memory is linear in T and S. The result does not
/// depend on the number of threads. Dao, FlashAttention-2, https://arxiv.org/abs/2307.08691
at::Tensor attend_in_tiles(const Heads& heads, const TiledAttention& attention);

// A part of each sequence of a batch, whose other parts are on other devices (sequence
// parallelism). n heads, t positions of a part.

struct KeysAndValues {
  at::Tensor k, v;
};

/// Parts are equally long and follow each other. The devices of all parts compute the same passes
/// at the same time.
class SequencePart {
 public:
  virtual ~SequencePart() = default;

  virtual std::int64_t number() const = 0;  ///< of this part, 0 … parts()-1
  virtual std::int64_t parts() const = 0;

  /// The position of this part's first token, if it has so many.
  std::int64_t first(std::int64_t length) const { return number() * length; }

  /// Keys and values, of this part [B, n, t, d] each -> of the earlier parts and this one, [B, n,
  /// (number() + 1)·t, d].
  virtual KeysAndValues joined(const KeysAndValues& own) const = 0;

  /// Sums, over all devices, what they pass for this part, in fp32 at least. all: [B, n, (number()
  /// + 1)·t, d] -> [B, n, t, d].
  virtual KeysAndValues own_sums(const KeysAndValues& all) const = 0;

  /// The sum of the tensors of all parts.
  virtual at::Tensor sum(const at::Tensor& own) const = 0;
};

/// part.joined(), with gradients. `part` must outlive the backward pass.
KeysAndValues join_parts(const SequencePart& part, const KeysAndValues& own);

}  // namespace regroup
