// Changes of basis of a head's features that do not change the result of attention.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "formats/spec/model_spec.h"

namespace regroup {

/// The d features of a head consist of planes that RoPE rotates and of free features. A plane
/// allows only a rotation and a common scale of both features; free features can be mixed by any
/// matrix. With neither, the basis is fixed.
struct HeadBasis {
  std::vector<std::pair<std::int64_t, std::int64_t>> rope_planes;
  std::vector<std::int64_t> free;
  std::vector<double> frequencies = {};  ///< of the planes, radians per position

  bool fixed() const { return rope_planes.empty() && free.empty(); }
  bool rotates() const { return !rope_planes.empty(); }
  std::int64_t head_dim() const { return std::ssize(free) + 2 * std::ssize(rope_planes); }
};

/// All features are free: values, which only the output projection reads.
HeadBasis free_basis(std::int64_t head_dim);

/// The basis of the keys of one role in one layer: free without RoPE, also with position biases;
/// planes with RoPE; fixed if keys are normalised, since norm weights belong to features.
HeadBasis key_basis(const ModelSpec& spec, AttentionRole role, std::size_t layer);

}  // namespace regroup
