// The order of the source's heads in a result, so that heads of a group are neighbours.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "formats/spec/model_spec.h"

namespace regroup {

/// Per role and layer a permutation of the kv heads, with which their query heads move.
class HeadOrder {
 public:
  /// `kv_heads`: the source head at each place.
  void set(AttentionRole role, std::size_t layer, std::vector<std::int64_t> kv_heads);

  /// Whether all heads keep their places.
  bool empty() const { return orders_.empty(); }
  bool moves(AttentionRole role, std::size_t layer) const;

  /// The orders of all layers whose heads move.
  using Place = std::pair<AttentionRole, std::size_t>;
  const std::map<Place, std::vector<std::int64_t>>& orders() const { return orders_; }

  /// The source head at each of `count` places: kv heads, or query heads with equally many per kv
  /// head.
  std::vector<std::int64_t> heads(AttentionRole role, std::size_t layer, std::int64_t count) const;

 private:
  std::map<Place, std::vector<std::int64_t>> orders_;
};

/// The layers, including this one, whose heads must move together: those that share a table of
/// relative biases with one column per query head, as in each of T5's stacks. Otherwise only this
/// layer.
std::vector<std::size_t> layers_in_step(const ModelSpec& source, AttentionRole role,
                                        std::size_t layer);

/// Throws kUsage unless every order is a permutation of its layer's kv heads, and layers that move
/// together have their query heads in the same order.
void check_order(const HeadOrder& order, const ModelSpec& source);

/// Whether the heads of that layer may be reordered; ALiBi slopes and relative biases move with
/// them. Layers that move together must have the same number of kv heads.
bool heads_can_move(const ModelSpec& source, AttentionRole role, std::size_t layer);

/// Sets the ALiBi slopes of `grouped` to those of `source` in that order, if both have ALiBi.
void move_slopes(const HeadOrder& order, const ModelSpec& source, ModelSpec& grouped);

}  // namespace regroup
