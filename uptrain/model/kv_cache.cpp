#include "uptrain/model/kv_cache.h"

#include <algorithm>
#include <limits>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include "formats/base/error.h"

namespace regroup {

CacheRing::CacheRing(const KvCacheSettings& settings, PositionKind positions, const RopeSpec& rope,
                     const at::TensorOptions& options)
    : settings_(settings),
      positions_(positions),
      slots_(settings.window ? std::min(settings.capacity, settings.sinks + *settings.window)
                             : settings.capacity),
      options_(options) {
  if (positions == PositionKind::kRope) {
    rope_.emplace(rope, settings.capacity, options);
    RopeSpec turn_alone = rope;  // for keys that have already been rotated and scaled
    turn_alone.scaling.attention_factor = 1.0;
    shift_.emplace(turn_alone, settings.capacity, options);
  }
}

std::int64_t CacheRing::longest_step(std::int64_t length) const {
  if (!drops()) {
    return slots_ - length;
  }
  return settings_.sinks == 0 ? std::numeric_limits<std::int64_t>::max()
                              : std::max<std::int64_t>(1, slots_ - length);
}

CacheStep CacheRing::step(std::int64_t first, std::int64_t count) {
  CacheStep step;
  step.first = first;
  step.count = count;
  step.sinks = settings_.sinks;
  step.slots = slots_;
  step.used = std::min(slots_, first + count);
  step.apart = count > 1 && first > 0 && first + count > slots_;
  const std::int64_t dropped = first + count - slots_;
  if (shift_ && settings_.sinks > 0 && dropped > 0) {
    step.sink_shift = shift_->at(dropped, 1);
  }
  if (rope_) {
    step.rope = rope_->at(first, count);
  }
  if (first > 0 && (count > 1 || positions_ == PositionKind::kAlibi)) {
    step.positions = positions_seen(step);
  }
  if (first > 0 && count > 1) {
    step.mask = mask_of(step);
  } else if (settings_.window && settings_.sinks == 0 && count > *settings_.window) {
    step.window = settings_.window;
  }
  return step;
}

// The positions of the keys that the new queries see. Slot j of the ring, which follows the sinks,
// holds the last token written to it: last - (last - j) mod ring.
at::Tensor CacheRing::positions_seen(const CacheStep& step) const {
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
at::Tensor CacheRing::mask_of(const CacheStep& step) const {
  const at::Tensor queries =
      at::arange(step.first, step.first + step.count, options_.dtype(at::kLong)).unsqueeze(1);
  at::Tensor hidden = step.positions > queries;  // [T, S]
  if (settings_.window && settings_.sinks == 0) {
    hidden = hidden.logical_or(step.positions <= queries - *settings_.window);
  }
  return hiding_mask(hidden, options_);
}

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

// oneDNN makes a kernel for each shape and keeps hundreds of them, and it copies what is not
// contiguous. So its products read whole tensors, of few sizes.
constexpr std::int64_t kFewestSlots = 64;

bool grows(const at::TensorOptions& options) {
  const auto type = c10::typeMetaToScalarType(options.dtype());
  return options.device().is_cpu() && type != at::kFloat && type != at::kDouble;
}

// Sees to slots for `used` tokens.
void make_room(LayerCache& layer, std::int64_t used) {
  const std::int64_t there = layer.k.size(2);
  if (used <= there) {
    return;
  }
  std::int64_t slots = there;
  while (slots < used) {
    slots *= 2;
  }
  for (at::Tensor* tensor : {&layer.k, &layer.v}) {
    std::vector<std::int64_t> shape = tensor->sizes().vec();
    shape[2] = std::min(slots, layer.slots);
    const at::Tensor larger = at::zeros(shape, tensor->options());
    larger.narrow(2, 0, there).copy_(*tensor);
    *tensor = larger;
  }
}

// For layers with the model's own sliding window.
KvCacheSettings within(KvCacheSettings settings, std::optional<std::int64_t> own) {
  if (own) {
    settings.window = std::min(settings.window.value_or(*own), *own);
  }
  return settings;
}

// Whether ALiBi's bias is a part of the keys: with a bias, GPUs have no kernel that splits one
// query's keys. Not in windows, whose positions are those within the cache.
bool extends(const ModelSpec& spec, const KvCacheSettings& settings, c10::Device device) {
  constexpr std::int64_t kMostPositions = 65536;  // see Alibi::key_dimensions()
  return spec.positions == PositionKind::kAlibi && !device.is_cpu() && !settings.window &&
         !spec.sliding_window && !spec.attention_softcap && settings.capacity <= kMostPositions;
}

}  // namespace

KvCache::KvCache(const ModelSpec& spec, const KvCacheSettings& settings,
                 const at::TensorOptions& options)
    : settings_(settings),
      options_(options),
      extended_(extends(spec, settings, options.device())),
      in_window_(within(settings, spec.sliding_window), spec.positions,
                 spec.window_rope.value_or(spec.rope), options),
      whole_(settings, spec.positions, spec.rope, options) {
  check_settings(spec, settings);
  const std::int64_t width = spec.head_dim + (extended_ ? Alibi::kMoreDimensions : 0);
  for (std::size_t i = 0; i < spec.layers.size(); ++i) {
    const bool windowed = spec.window_of(spec.layers[i]).has_value();
    const CacheRing& ring = windowed ? in_window_ : whole_;
    (windowed ? windows_ : wholes_) = true;
    LayerCache layer;
    if (spec.layers[i].attention.present()) {
      layer.slots = ring.slots();
      const std::int64_t first = grows(options) ? std::min(kFewestSlots, layer.slots) : layer.slots;
      const auto zeros = [&](std::int64_t slots) {
        return at::zeros({settings.batch, spec.kv_heads[i], slots, width}, options);
      };
      // Zeros, not uninitialised memory: unused slots may be read with weight 0.
      layer.k = zeros(first);
      layer.v = zeros(first);
      if (settings.sinks > 0 && ring.rotates() && !spec.layers[i].without_rope) {
        layer.sink_keys = zeros(std::min(settings.sinks, layer.slots));
      }
    }
    layers_.push_back(layer);
  }
}

bool KvCache::drops() const {
  return (!windows_ || in_window_.drops()) && (!wholes_ || whole_.drops());
}

std::int64_t KvCache::longest_step() const {
  const std::int64_t most = std::numeric_limits<std::int64_t>::max();
  return std::min(windows_ ? in_window_.longest_step(length_) : most,
                  wholes_ ? whole_.longest_step(length_) : most);
}

std::uint64_t KvCache::bytes() const {
  std::uint64_t sum = 0;
  for (const LayerCache& layer : layers_) {
    for (const at::Tensor* tensor :
         {&layer.k, &layer.v, &layer.sink_keys, &layer.cross_k, &layer.cross_v}) {
      sum += tensor->defined() ? tensor->nbytes() : 0;
    }
  }
  return sum;
}

void KvCache::fill_with_noise(std::int64_t length) {
  for (LayerCache& layer : layers_) {
    if (layer.slots > 0) {
      make_room(layer, layer.slots);
    }
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

CacheSteps KvCache::step(std::int64_t count) {
  if (count < 1 || count > longest_step()) {
    throw_usage("{} more tokens after {}: a cache of {} slots takes {}", count, length_,
                wholes_ ? whole_.slots() : in_window_.slots(),
                longest_step() == 0 ? "no more" : fmt::format("up to {}", longest_step()));
  }
  CacheSteps steps;
  if (windows_) {
    steps.in_window = in_window_.step(length_, count);
  }
  if (wholes_) {
    steps.whole = whole_.step(length_, count);
  }
  if (extended_) {
    const at::Tensor positions = at::arange(length_, length_ + count, options_.dtype(at::kLong));
    steps.whole.key_dimensions = Alibi::key_dimensions(positions, options_);
  }
  return steps;
}

void store(LayerCache& layer, const CacheStep& step, const at::Tensor& k, const at::Tensor& v) {
  make_room(layer, step.used);
  const std::int64_t end = step.first + step.count;
  const std::int64_t ring = step.slots - step.sinks;
  std::int64_t position = step.first;
  while (position < end) {
    if (position >= step.sinks && position < end - ring) {
      position = end - ring;  // earlier ones would be overwritten in this call
    }
    const std::int64_t slot =
        position < step.sinks ? position : step.sinks + (position - step.sinks) % ring;
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

namespace {

// Copies of the used slots would take several times as long as reading unused ones.
bool reads_whole_cache(const at::Tensor& k, std::int64_t used) {
  return grows(k.options()) && (2 * used >= k.size(2) || k.size(2) <= kFewestSlots);
}

// Computes two matrix products per group. rows: [B, G, n, d], bias: [1, 1 or G, n, S].
at::Tensor attend_by_products(const at::Tensor& rows, const at::Tensor& k, const at::Tensor& v,
                              const at::Tensor& bias, double scale, std::optional<double> softcap) {
  const at::Tensor scores =
      at::bmm(rows.flatten(0, 1), k.flatten(0, 1).transpose(1, 2));  // [B·G, n, S]
  at::Tensor wide = softcapped(scores.to(wide_type(scores)) * scale, softcap);
  if (bias.defined()) {
    wide = wide.view({rows.size(0), rows.size(1), rows.size(2), -1}) + bias;
  }
  const at::Tensor weights = at::softmax(wide, -1).to(v.scalar_type());
  const at::Tensor flat = weights.view({-1, rows.size(2), k.size(2)});
  return at::bmm(flat, v.flatten(0, 1)).view_as(rows);
}

}  // namespace

at::Tensor attend_from_one_token(const Heads& heads, std::int64_t used, const at::Tensor& bias,
                                 std::optional<double> scale, std::optional<double> softcap) {
  const at::Tensor& q = heads.q;
  const double factor = scale_of(q, scale);
  const std::int64_t groups = heads.k.size(1);
  const at::Tensor rows = fold_queries(q, groups);  // [B, G, H/G, d]
  at::Tensor row_bias = fold_mask(bias, q.size(1), groups);
  if (reads_whole_cache(heads.k, used)) {
    const std::int64_t unused = heads.k.size(2) - used;
    if (unused > 0) {
      constexpr double kHidden = -std::numeric_limits<double>::infinity();
      row_bias = at::constant_pad_nd(
          row_bias.defined() ? row_bias : at::zeros({1, 1, 1, used}, q.options().dtype(at::kFloat)),
          {0, unused}, kHidden);
    }
    return attend_by_products(rows, heads.k, heads.v, row_bias, factor, softcap).view_as(q);
  }
  const at::Tensor k = heads.k.narrow(2, 0, used);
  const at::Tensor v = heads.v.narrow(2, 0, used);
  if (q.is_cpu() || row_bias.defined() || softcap) {
    return attend_by_products(rows, k, v, row_bias, factor, softcap).view_as(q);
  }
  return at::scaled_dot_product_attention(rows, k, v, {}, /*dropout_p=*/0.0, /*is_causal=*/false,
                                          factor)
      .reshape(q.sizes());
}

}  // namespace regroup
