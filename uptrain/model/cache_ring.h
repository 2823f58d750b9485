// Where the layers of one kind (with the model's sliding window, or without it) store the keys and
// values of their tokens in a KV cache, and which of them queries see.
//
// Shapes: B sequences, T new tokens, C slots, S keys that queries see, G kv heads of a layer, s
// attention sinks, d head dimension.
#pragma once

#include <cstdint>
#include <optional>

#include <ATen/core/Tensor.h>

#include "formats/spec/model_spec.h"
#include "uptrain/ops/rope.h"

namespace regroup {

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

  std::int64_t slot_of(std::int64_t position) const;
};

/// The slots of a cache: attention sinks, then a ring that keeps the last tokens of a window, or
/// all tokens if there is no window.
class CacheRing {
 public:
  struct Settings {
    std::int64_t capacity = 0;  ///< as in KvCacheSettings
    std::int64_t sinks = 0;
    std::optional<std::int64_t> window;
  };

  /// `rope`: of the layers, unless they have none.
  CacheRing(const Settings& settings, PositionKind positions, const RopeSpec& rope,
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

  Settings settings_;
  PositionKind positions_;
  std::int64_t slots_ = 0;
  at::TensorOptions options_;
  std::optional<RopePositions> rope_, shift_;
};

}  // namespace regroup
