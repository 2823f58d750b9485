#include "uptrain/model/kv_cache.h"

#include <algorithm>
#include <limits>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include "formats/base/error.h"
#include "uptrain/ops/attention.h"

namespace regroup {
namespace {

void check_settings(const ModelSpec& spec, const KvCacheSettings& settings) {
  if (!spec.causal) {
    throw_usage("{} cannot use a KV cache: its attention is bidirectional", spec.architecture);
  }
  if (settings.batch < 1 || settings.capacity < 1 || settings.sinks < 0 ||
      settings.window.value_or(1) < 1) {
    throw_usage(
        "a cache of {} sequences of {} tokens with a window of {} and {} attention sinks: the "
        "minimums are 1, 1, 1 and 0",
        settings.batch, settings.capacity, settings.window.value_or(1), settings.sinks);
  }
  if (settings.window && spec.positions == PositionKind::kRelativeBias) {
    throw_usage("a window over the cache does not work with T5's relative positions");
  }
  if (settings.sinks > 0 && !settings.window) {
    throw_usage("attention sinks need a window");
  }
  if (settings.sinks > 0 && spec.has_position_table()) {
    throw_usage("attention sinks do not work with {} positions, which are part of cached keys",
                name_of(spec.positions));
  }
}

std::optional<std::int64_t> narrowest(std::optional<std::int64_t> one,
                                      std::optional<std::int64_t> other) {
  return one && other ? std::min(*one, *other) : one ? one : other;
}

std::uint64_t cached_bytes(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.nbytes() : 0;
}

}  // namespace

std::int64_t CacheStep::slot_of(std::int64_t position) const {
  return position < sinks ? position : sinks + (position - sinks) % (slots - sinks);
}

KvCache::KvCache(const ModelSpec& spec, const KvCacheSettings& settings,
                 const at::TensorOptions& options)
    : settings_(settings),
      window_(narrowest(settings.window, spec.sliding_window)),
      positions_(spec.positions),
      options_(options) {
  check_settings(spec, settings);
  slots_ = window_ ? std::min(settings.capacity, settings.sinks + *window_) : settings.capacity;
  if (spec.positions == PositionKind::kRope) {
    rope_.emplace(spec.rope, settings.capacity, options);
    RopeSpec turn_alone = spec.rope;  // for keys that have already been rotated and scaled
    turn_alone.scaling.attention_factor = 1.0;
    shift_.emplace(turn_alone, settings.capacity, options);
  }
  for (std::size_t i = 0; i < spec.layers.size(); ++i) {
    LayerCache layer;
    if (spec.layers[i].attention.present()) {
      // Zeros, not uninitialised memory: unused slots may be read with weight 0.
      layer.k = at::zeros({settings.batch, spec.kv_heads[i], slots_, spec.head_dim}, options);
      layer.v = at::zeros_like(layer.k);
      if (settings.sinks > 0 && rope_ && !spec.layers[i].without_rope) {
        layer.sink_keys = at::zeros_like(layer.k.narrow(2, 0, std::min(settings.sinks, slots_)));
      }
    }
    layers_.push_back(layer);
  }
}

bool KvCache::drops() const { return window_ && slots_ == settings_.sinks + *window_; }

std::int64_t KvCache::longest_step() const {
  if (!drops()) {
    return slots_ - length_;
  }
  return settings_.sinks == 0 ? std::numeric_limits<std::int64_t>::max()
                              : std::max<std::int64_t>(1, slots_ - length_);
}

std::uint64_t KvCache::bytes() const {
  std::uint64_t sum = 0;
  for (const LayerCache& layer : layers_) {
    for (const at::Tensor* tensor :
         {&layer.k, &layer.v, &layer.sink_keys, &layer.cross_k, &layer.cross_v}) {
      sum += cached_bytes(*tensor);
    }
  }
  return sum;
}

void KvCache::truncate(std::int64_t length) {
  if (length > length_ || (length < length_ && length_ > slots_)) {
    throw_usage("a cache of the last {} tokens cannot go back to token {} of {}", slots_, length,
                length_);
  }
  length_ = length;
}

void KvCache::fill_with_noise(std::int64_t length) {
  for (LayerCache& layer : layers_) {
    for (at::Tensor* tensor : {&layer.k, &layer.v, &layer.sink_keys}) {
      if (tensor->defined()) {  // all heads get the same noise, because drawing it is slow
        tensor->copy_(at::empty_like(tensor->select(0, 0).select(0, 0)).normal_());
      }
    }
  }
  length_ = length;
}

void KvCache::set_encoded(const at::Tensor& encoded) {
  encoded_ = encoded;
  length_ = 0;
  for (LayerCache& layer : layers_) {
    layer.cross_k.reset();
    layer.cross_v.reset();
  }
}

CacheStep KvCache::step(std::int64_t count) {
  if (count < 1 || count > longest_step()) {
    throw_usage("{} more tokens after {}: a cache of {} slots takes {}", count, length_, slots_,
                longest_step() == 0 ? "no more" : fmt::format("up to {}", longest_step()));
  }
  CacheStep step;
  step.first = length_;
  step.count = count;
  step.sinks = settings_.sinks;
  step.slots = slots_;
  step.used = std::min(slots_, length_ + count);
  step.apart = count > 1 && length_ > 0 && length_ + count > slots_;
  const std::int64_t dropped = length_ + count - slots_;
  if (shift_ && settings_.sinks > 0 && dropped > 0) {
    step.sink_shift = shift_->at(dropped, 1);
  }
  if (length_ > 0 && (count > 1 || positions_ == PositionKind::kAlibi)) {
    step.positions = positions_seen(step);
  }
  if (length_ > 0 && count > 1) {
    step.mask = mask_of(step);
  } else if (window_ && settings_.sinks == 0 && count > *window_) {
    step.window = window_;
  }
  return step;
}

// The positions of the keys that the new queries see. Slot j of the ring, which follows the sinks,
// holds the last token written to it: last - (last - j) mod ring.
at::Tensor KvCache::positions_seen(const CacheStep& step) const {
  const at::TensorOptions options = options_.dtype(at::kLong);
  const std::int64_t read = step.apart ? step.first : step.first + step.count;
  const std::int64_t ring = slots_ - settings_.sinks;
  if (read <= slots_ && !step.apart) {
    return at::arange(read, options);
  }
  const std::int64_t in_ring = std::min(read, slots_) - settings_.sinks;
  const at::Tensor slot = at::arange(settings_.sinks, settings_.sinks + in_ring, options);
  const at::Tensor held = read - 1 - (read - 1 - slot).remainder(ring);
  if (step.apart) {
    return at::cat({held, at::arange(read, read + step.count, options)});
  }
  // Sinks have the positions right before the window.
  return at::cat({at::arange(settings_.sinks, options) + (read - slots_), held});
}

// A query sees the keys up to its own position that are within the window.
at::Tensor KvCache::mask_of(const CacheStep& step) const {
  const at::Tensor queries =
      at::arange(step.first, step.first + step.count, options_.dtype(at::kLong)).unsqueeze(1);
  at::Tensor hidden = step.positions > queries;  // [T, S]
  if (window_ && settings_.sinks == 0) {
    hidden = hidden.logical_or(step.positions <= queries - *window_);
  }
  return at::zeros(hidden.sizes(), options_)
      .masked_fill(hidden, -std::numeric_limits<double>::infinity())
      .unsqueeze(0)
      .unsqueeze(0);
}

std::optional<RopeTable> KvCache::rope(const CacheStep& step) {
  return rope_ ? std::optional(rope_->at(step.first, step.count)) : std::nullopt;
}

void store(LayerCache& layer, const CacheStep& step, const at::Tensor& k, const at::Tensor& v) {
  const std::int64_t end = step.first + step.count;
  const std::int64_t ring = step.slots - step.sinks;
  std::int64_t position = step.first;
  while (position < end) {
    if (position >= step.sinks && position < end - ring) {
      position = end - ring;  // earlier ones would be overwritten in this call
    }
    const std::int64_t slot = step.slot_of(position);
    const std::int64_t room = (slot < step.sinks ? step.sinks : step.slots) - slot;
    const std::int64_t run = std::min(room, end - position);
    const std::int64_t from = position - step.first;
    layer.k.narrow(2, slot, run).copy_(k.narrow(2, from, run));
    layer.v.narrow(2, slot, run).copy_(v.narrow(2, from, run));
    if (layer.sink_keys.defined() && slot < step.sinks) {
      layer.sink_keys.narrow(2, slot, run).copy_(k.narrow(2, from, run));
    }
    position += run;
  }
  if (step.sink_shift && layer.sink_keys.defined()) {
    layer.k.narrow(2, 0, step.sinks).copy_(rotate(layer.sink_keys, *step.sink_shift));
  }
}

}  // namespace regroup
