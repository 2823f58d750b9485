// KV cache of a decoder.
//
// Shapes: B sequences, T new tokens, C slots, S keys that queries see, G kv heads of a layer, s
// attention sinks, d head dimension.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "formats/spec/model_spec.h"
#include "uptrain/ops/rope.h"

namespace regroup {

/// Settings of a cache.
struct KvCacheSettings {
  std::int64_t batch = 1;
  /// Maximum sequence length. With a window that drops old tokens sequences may be longer, and
  /// there are only as many slots as the window has. RoPE with dynamic scaling is computed for this
  /// length.
  std::int64_t capacity = 0;
  /// Sliding window: tokens a query sees, itself included. Older tokens except sinks are dropped.
  /// The model's own sliding window also applies.
  std::optional<std::int64_t> window;
  /// Attention sinks: the first tokens of each sequence, visible to all later ones. Positions are
  /// those within the cache, so dropped tokens leave no gap between sinks and window; Xiao et al.,
  /// StreamingLLM, https://arxiv.org/abs/2309.17453, section 3.2.
  std::int64_t sinks = 0;
};

/// The cache of one layer; undefined tensors if it has no attention.
struct LayerCache {
  at::Tensor k, v;              ///< [B, G, C, d]; keys after RoPE
  at::Tensor sink_keys;         ///< [B, G, s, d], keys of the sinks before they are shifted
  at::Tensor cross_k, cross_v;  ///< of the encoder's output, from the first pass on
};

/// Where one pass over T new tokens stores their keys, and which keys its queries see; the same for
/// all layers.
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
  at::Tensor positions;                 ///< int64 [S]: positions of the keys, if needed
  at::Tensor mask;                      ///< [1, 1, T, S]; undefined: all are seen
  std::optional<std::int64_t> window;   ///< of the first tokens, see attend_in_window()
  std::optional<RopeTable> sink_shift;  ///< rotation that shifts the sinks' keys

  std::int64_t slot_of(std::int64_t position) const;
};

class KvCache {
 public:
  /// An empty cache for a model that computes with tensors of `options`. Throws kUsage for models
  /// without a KV cache, for sinks without a window, and for sinks with positions that are part of
  /// what is cached (learned ones, T5's buckets).
  KvCache(const ModelSpec& spec, const KvCacheSettings& settings, const at::TensorOptions& options);

  /// Tokens read so far.
  std::int64_t length() const { return length_; }

  /// Maximum number of tokens of the next pass. Once a window drops tokens, a cache with sinks
  /// takes one token at a time, because each sees the sinks at different distances.
  std::int64_t longest_step() const;

  /// Bytes of keys and values in all slots, used or not, and of copies of sinks.
  std::uint64_t bytes() const;

  /// Whether tokens are dropped when all slots are used.
  bool drops() const;

  /// Truncates to the first `length` tokens. Throws kUsage if some were dropped or never read.
  void truncate(std::int64_t length);

  /// Sets the state after `length` tokens with random keys and values, for measuring speed.
  void fill_with_noise(std::int64_t length);

  /// The input of cross-attention, [B, S, D]; undefined without an encoder.
  const at::Tensor& encoded() const { return encoded_; }
  void set_encoded(const at::Tensor& encoded);

  /// The pass over the next `count` tokens. Throws kUsage if they do not fit.
  CacheStep step(std::int64_t count);
  /// Records that they were read.
  void advance(const CacheStep& step) { length_ += step.count; }

  LayerCache& layer(std::size_t index) { return layers_[index]; }

  /// The angles of the new tokens; none without RoPE.
  std::optional<RopeTable> rope(const CacheStep& step);

 private:
  at::Tensor positions_seen(const CacheStep& step) const;
  at::Tensor mask_of(const CacheStep& step) const;

  KvCacheSettings settings_;
  std::optional<std::int64_t> window_;
  PositionKind positions_ = PositionKind::kNone;
  std::int64_t slots_ = 0;
  std::int64_t length_ = 0;
  at::TensorOptions options_;
  std::optional<RopePositions> rope_, shift_;
  std::vector<LayerCache> layers_;
  at::Tensor encoded_;
};

/// Stores the keys and values [B, G, T, d] of the new tokens that later ones may see.
void store(LayerCache& layer, const CacheStep& step, const at::Tensor& k, const at::Tensor& v);

}  // namespace regroup
