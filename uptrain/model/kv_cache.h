// The KV cache, and attention over it.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "formats/spec/model_spec.h"
#include "uptrain/ops/attention.h"
#include "uptrain/ops/rope.h"

namespace regroup {

// Where the layers of one kind (with the model's sliding window, or without it) store the keys and
// values of their tokens in a KV cache, and which of them queries see.
//
// Shapes: B sequences, T new tokens, C slots, S keys that queries see, G kv heads of a layer, s
// attention sinks, d head dimension.

/// Where one pass over T new tokens stores their keys, and which keys its queries see; the same for
/// all layers of a ring.
struct CacheStep {
  std::int64_t first = 0;  ///< position of the first new token
  std::int64_t count = 0;  ///< T
  std::int64_t sinks = 0;
  std::int64_t slots = 0;  ///< C
  /// Slots in use, once the new tokens are stored.
  std::int64_t used = 0;
  /// Whether new tokens would overwrite keys that other new tokens see. They then attend to the old
  /// cache and to each other, and are stored afterwards.
  bool apart = false;
  at::Tensor key_dimensions;            ///< [T, 8] of Alibi, if the cache's keys have them
  at::Tensor positions;                 ///< int64 [S]: positions of the keys, if needed
  at::Tensor mask;                      ///< [1, 1, T, S]; undefined: all are seen
  std::optional<std::int64_t> window;   ///< of the first tokens, see attend_in_window()
  std::optional<RopeTable> rope;        ///< angles of the new tokens; none without RoPE
  std::optional<RopeTable> sink_shift;  ///< rotation that shifts the sinks' keys
};

struct KvCacheSettings {
  std::int64_t batch = 1;
  /// Maximum sequence length. With a window that drops old tokens sequences may be longer, and
  /// there are only as many slots as the window has. RoPE with dynamic scaling is computed for this
  /// length.
  std::int64_t capacity = 0;
  /// Sliding window: tokens a query sees, itself included. Older tokens except sinks are dropped.
  /// The model's own sliding window also applies.
  std::optional<std::int64_t> window = std::nullopt;
  /// Attention sinks: the first tokens of each sequence, visible to all later ones. Positions are
  /// those within the cache, so dropped tokens leave no gap between sinks and window; Xiao et al.,
  /// StreamingLLM, https://arxiv.org/abs/2309.17453, section 3.2.
  std::int64_t sinks = 0;
};

/// The slots of a cache: attention sinks, then a ring that keeps the last tokens of a window, or
/// all tokens if there is no window.
class CacheRing {
 public:
  /// `rope`: of the layers, unless they have none.
  CacheRing(const KvCacheSettings& settings, PositionKind positions, const RopeSpec& rope,
            const at::TensorOptions& options);

  std::int64_t slots() const { return slots_; }
  bool rotates() const { return rope_.has_value(); }
  /// Whether tokens are dropped when all slots are used.
  bool drops() const { return settings_.window && slots_ == settings_.sinks + *settings_.window; }
  /// Maximum number of tokens of the pass after `length` tokens. Once tokens are dropped, a ring
  /// with sinks takes one token at a time, because each sees the sinks at different distances.
  std::int64_t longest_step(std::int64_t length) const;

  /// The pass over `count` tokens after `first` others.
  CacheStep step(std::int64_t first, std::int64_t count);

 private:
  at::Tensor positions_seen(const CacheStep& step) const;
  at::Tensor mask_of(const CacheStep& step) const;

  KvCacheSettings settings_;
  PositionKind positions_;
  std::int64_t slots_ = 0;
  at::TensorOptions options_;
  std::optional<RopePositions> rope_, shift_;
};

// KV cache of a decoder.

/// The cache of one layer; undefined tensors if it has no attention.
struct LayerCache {
  /// [B, G, C, d], keys after RoPE. On GPUs [B, G, C, d + 8] for ALiBi, see Alibi::extended(). In
  /// bf16 and fp16 on CPUs they begin with fewer slots and are doubled when these are used.
  at::Tensor k, v;
  std::int64_t slots = 0;       ///< C
  at::Tensor sink_keys;         ///< [B, G, s, d], keys of the sinks before they are shifted
  at::Tensor cross_k, cross_v;  ///< of the encoder's output, from the first pass on
};

/// A pass over new tokens, for the layers with the model's sliding window and for the others.
struct CacheSteps {
  CacheStep in_window, whole;
};

class KvCache {
 public:
  /// An empty cache for a model that computes with tensors of `options`. Throws kUsage for models
  /// without a KV cache, for sinks without a window, and for sinks with positions that are part of
  /// what is cached (learned ones, T5's buckets).
  KvCache(const ModelSpec& spec, const KvCacheSettings& settings, const at::TensorOptions& options);

  /// Tokens read so far.
  std::int64_t length() const { return length_; }

  /// Maximum number of tokens of the next pass, see CacheRing::longest_step().
  std::int64_t longest_step() const;

  /// Bytes of keys and values in the slots that are there by now, used or not, and of copies of
  /// sinks.
  std::uint64_t bytes() const;

  /// Whether all layers drop tokens when their slots are used, so that sequences can be longer than
  /// the capacity.
  bool drops() const;

  /// Sets the state after `length` tokens with random keys and values, for measuring speed.
  void fill_with_noise(std::int64_t length);
  /// Sets the state after `length` tokens with the keys and values that are stored, whatever they
  /// belong to, for measuring speed.
  void assume_length(std::int64_t length) { length_ = length; }

  /// The input of cross-attention, [B, S, D]; undefined without an encoder.
  const at::Tensor& encoded() const { return encoded_; }
  void set_encoded(const at::Tensor& encoded);

  /// The pass over the next `count` tokens. Throws kUsage if they do not fit.
  CacheSteps step(std::int64_t count);
  /// Records that they were read.
  void advance(std::int64_t count) { length_ += count; }

  LayerCache& layer(std::size_t index) { return layers_[index]; }

 private:
  KvCacheSettings settings_;
  at::TensorOptions options_;
  bool extended_ = false;        // whether keys and values have ALiBi's dimensions
  CacheRing in_window_, whole_;  // of layers with the model's sliding window, and of the others
  bool windows_ = false;         // whether there are layers of the first kind
  bool wholes_ = false;          // and of the second
  std::int64_t length_ = 0;
  std::vector<LayerCache> layers_;
  at::Tensor encoded_;
};

/// Stores the keys and values [B, G, T, d] of the new tokens that later ones may see.
void store(LayerCache& layer, const CacheStep& step, const at::Tensor& k, const at::Tensor& v);

// Attention of one new token of each sequence over a KV cache.
//
// Shapes: B sequences, C slots of a cache, S keys, H query heads, G kv heads, d head dimension.

/// One query per head: softmax(softcapped(scale · q kᵀ) + bias) v. q: [B, H, 1, d]; k, v: [B, G, C,
/// d], of which the first `used` (S) slots are keys, but unused ones must be finite, too; bias: [1,
/// 1 or H, 1, S] or undefined -> [B, H, 1, d]. On the CPU scores are rounded to the dtype of q and
/// k, as in torch.bmm.
at::Tensor attend_from_one_token(const Heads& heads, std::int64_t used, const at::Tensor& bias,
                                 std::optional<double> scale,
                                 std::optional<double> softcap = std::nullopt);

}  // namespace regroup
