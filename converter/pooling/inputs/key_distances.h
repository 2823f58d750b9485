// Distances between a query and the keys that it attends to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "formats/spec/model_spec.h"

namespace regroup {

/// Per query head (H): the fraction of attention on keys t positions before the query, averaged
/// over queries.
struct KeyDistances {
  std::int64_t length = 0;      ///< T, distances 0 … T − 1
  std::vector<double> weights;  ///< [H, T], rows that add up to 1

  /// The same with query head order[i] in place i.
  KeyDistances in_order(std::span<const std::int64_t> order) const;
};

/// Whether they matter: keys with RoPE in causal attention.
bool has_distances(const ModelSpec& spec, AttentionRole role);

/// The assumption without data: attention decays with the distance as (1 + t)^-3/2 (chosen by
/// measurement, docs/pooling.md), up to the model's positions, but at most kMostDistances.
KeyDistances usual_distances(const ModelSpec& spec);
inline constexpr std::int64_t kMostDistances = 4096;

}  // namespace regroup
