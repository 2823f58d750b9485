// In which bases a head's features may be described without changing what attention computes.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "formats/spec/model_spec.h"

namespace regroup {

/// The d features of a head fall into planes that RoPE rotates, in which only one rotation and
/// scale for both features keeps the result, and features that may be mixed freely. With neither,
/// the basis is fixed.
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

/// Of the keys of one role. Free without RoPE, whatever the biases of positions are; in RoPE's
/// planes with it; fixed where keys are normalised, since a norm's weights belong to features.
HeadBasis key_basis(const ModelSpec& spec, AttentionRole role);

}  // namespace regroup
