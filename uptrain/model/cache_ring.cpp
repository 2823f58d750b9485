#include "uptrain/model/cache_ring.h"

#include <algorithm>
#include <limits>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>

namespace regroup {

std::int64_t CacheStep::slot_of(std::int64_t position) const {
  return position < sinks ? position : sinks + (position - sinks) % (slots - sinks);
}

CacheRing::CacheRing(const Settings& settings, PositionKind positions, const RopeSpec& rope,
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
  return at::zeros(hidden.sizes(), options_)
      .masked_fill(hidden, -std::numeric_limits<double>::infinity())
      .unsqueeze(0)
      .unsqueeze(0);
}

}  // namespace regroup
