// Keys and values of the tokens a decoder has read, so that each further token costs one query.
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

/// What a cache is made for.
struct KvCacheSettings {
  std::int64_t batch = 1;
  /// The most tokens of a sequence. Where a window drops old ones sequences may be longer, and no
  /// more slots are made than the window has. RoPE with dynamic scaling turns as for this length.
  std::int64_t capacity = 0;
  /// Tokens a query sees, itself included; others are dropped, but for the sinks. The model's own
  /// sliding window holds, too.
  std::optional<std::int64_t> window;
  /// The first tokens of each sequence that stay in sight of all later ones. Xiao et al.,
  /// StreamingLLM, https://arxiv.org/abs/2309.17453, section 3.2: positions are those within the
  /// cache, so what was dropped leaves no gap between a sink and the window.
  std::int64_t sinks = 0;
};

/// What one layer keeps; undefined tensors where it does not attend.
struct LayerCache {
  at::Tensor k, v;              ///< [B, G, C, d]; keys rotated where RoPE does
  at::Tensor sink_keys;         ///< [B, G, s, d], those of the sinks before they are moved on
  at::Tensor cross_k, cross_v;  ///< of the encoder's output, from the first pass on
};

/// Where one pass over T new tokens puts their keys and which ones its queries see; the same for
/// all layers.
struct CacheStep {
  std::int64_t first = 0;  ///< position of the first new token
  std::int64_t count = 0;  ///< T
  std::int64_t sinks = 0;
  std::int64_t slots = 0;  ///< C
  /// Slots in use, once the new tokens are stored.
  std::int64_t used = 0;
  /// Whether new tokens would overwrite what others of them see: these look at the cache as it was
  /// and at themselves, and are stored afterwards.
  bool apart = false;
  at::Tensor positions;                 ///< int64 [S]: where the keys stand; if it matters
  at::Tensor mask;                      ///< [1, 1, T, S]; undefined: all are seen
  std::optional<RopeTable> sink_shift;  ///< by how much the sinks' keys are moved on

  std::int64_t slot_of(std::int64_t position) const;
};

class KvCache {
 public:
  /// An empty one for a model that computes with tensors of `options`. Throws kUsage for models
  /// that keep no keys and values, and for sinks without a window or with positions that are part
  /// of what is cached (learned ones, T5's buckets).
  KvCache(const ModelSpec& spec, const KvCacheSettings& settings, const at::TensorOptions& options);

  /// Tokens read so far.
  std::int64_t length() const { return length_; }

  /// The most tokens that the next pass can read. Once a window has begun to drop tokens, a cache
  /// with sinks takes one at a time: each of them sees the sinks from another place.
  std::int64_t longest_step() const;

  /// Of keys and values, in all slots whether in use or not, and of copies of sinks.
  std::uint64_t bytes() const;

  /// Whether tokens are dropped once there are more than slots.
  bool drops() const;

  /// Back to the first `length` tokens. Throws kUsage where some were dropped, or never read.
  void truncate(std::int64_t length);

  /// As after `length` tokens, whose keys and values are noise: for measuring speed.
  void fill_with_noise(std::int64_t length);

  /// What a decoder's cross-attention looks at, [B, S, D]; undefined without an encoder.
  const at::Tensor& encoded() const { return encoded_; }
  void set_encoded(const at::Tensor& encoded);

  /// The pass over the next `count` tokens. Throws kUsage where they do not fit.
  CacheStep step(std::int64_t count);
  /// Takes note that they were read.
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
