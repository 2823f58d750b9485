// In which order a result keeps the heads of its source, so that those of a group are neighbours.
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
  /// `kv_heads`: which of the source's stands where.
  void set(AttentionRole role, std::size_t layer, std::vector<std::int64_t> kv_heads);

  /// Whether all heads keep their places.
  bool empty() const { return orders_.empty(); }
  bool moves(AttentionRole role, std::size_t layer) const;

  /// The orders of all layers whose heads move.
  using Place = std::pair<AttentionRole, std::size_t>;
  const std::map<Place, std::vector<std::int64_t>>& orders() const { return orders_; }

  /// Which of `count` source heads stands where: kv heads, or query heads of which each kv head
  /// has equally many.
  std::vector<std::int64_t> heads(AttentionRole role, std::size_t layer, std::int64_t count) const;

 private:
  std::map<Place, std::vector<std::int64_t>> orders_;
};

/// The layers whose heads can only move together, that one among them: those that share a table of
/// relative biases, as each of T5's stacks does, with one column per query head. Else it is alone.
std::vector<std::size_t> layers_in_step(const ModelSpec& source, AttentionRole role,
                                        std::size_t layer);

/// Throws kUsage unless every order is a permutation of as many kv heads as its layer has, and
/// layers in step have their query heads in the same order.
void check_order(const HeadOrder& order, const ModelSpec& source);

/// Whether the heads of that layer may change places at all. Slopes and biases of positions move
/// with them. Layers in step must have equally many kv heads.
bool heads_can_move(const ModelSpec& source, AttentionRole role, std::size_t layer);

/// Gives `grouped` the slopes of `source` in that order, where both have ALiBi.
void move_slopes(const HeadOrder& order, const ModelSpec& source, ModelSpec& grouped);

}  // namespace regroup
