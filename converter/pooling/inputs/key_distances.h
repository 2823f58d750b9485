// How far from a query the keys lie that it attends to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "formats/spec/model_spec.h"

namespace regroup {

/// Of H query heads: how much of the attention falls on keys t positions before the query, on
/// average over queries.
struct KeyDistances {
  std::int64_t length = 0;      ///< T, distances 0 … T − 1
  std::vector<double> weights;  ///< [H, T], rows that add up to 1

  /// The same with query head order[i] in place i.
  KeyDistances in_order(std::span<const std::int64_t> order) const;
};

/// Where they matter: keys that RoPE rotates, seen by queries that come after them.
bool has_distances(const ModelSpec& spec, AttentionRole role);

/// What to expect without any data: attention falls with the distance as (1 + t)^-3/2 (chosen by
/// measurement, docs/pooling.md), up to the model's positions, but at most kMostDistances.
KeyDistances usual_distances(const ModelSpec& spec);
inline constexpr std::int64_t kMostDistances = 4096;

}  // namespace regroup
