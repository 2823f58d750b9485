// KV cache of a decoder.
//
// Shapes: B sequences, C slots of a layer, G kv heads of a layer, s attention sinks, d head
// dimension.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "formats/spec/model_spec.h"
#include "uptrain/model/cache_ring.h"

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
  /// [B, G, C, d], keys after RoPE. On GPUs [B, G, C, d + 8] for ALiBi, see Alibi::extended().
  at::Tensor k, v;
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

  /// Bytes of keys and values in all slots, used or not, and of copies of sinks.
  std::uint64_t bytes() const;

  /// Whether all layers drop tokens when their slots are used, so that sequences can be longer than
  /// the capacity.
  bool drops() const;

  /// Truncates to the first `length` tokens. Throws kUsage if some were dropped or never read.
  void truncate(std::int64_t length);

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
  std::int64_t fewest_slots() const;

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

}  // namespace regroup
