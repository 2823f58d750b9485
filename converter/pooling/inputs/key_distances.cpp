#include "converter/pooling/inputs/key_distances.h"

#include <algorithm>
#include <cmath>

#include "converter/pooling/inputs/head_basis.h"

namespace regroup {

KeyDistances KeyDistances::in_order(std::span<const std::int64_t> order) const {
  KeyDistances moved{length, {}};
  for (const std::int64_t head : order) {
    const auto row = weights.begin() + head * length;
    moved.weights.insert(moved.weights.end(), row, row + length);
  }
  return moved;
}

bool has_distances(const ModelSpec& spec, AttentionRole role) {
  return !spec.stack(role).empty() && key_basis(spec, role, 0).rotates();
}

KeyDistances usual_distances(const ModelSpec& spec) {
  KeyDistances usual;
  usual.length =
      std::clamp<std::int64_t>(spec.max_positions.value_or(kMostDistances), 1, kMostDistances);
  std::vector<double> row;
  double sum = 0.0;
  for (std::int64_t t = 0; t < usual.length; ++t) {
    row.push_back(std::pow(static_cast<double>(1 + t), -1.5));
    sum += row.back();
  }
  for (double& weight : row) {
    weight /= sum;
  }
  for (std::int64_t head = 0; head < spec.query_heads; ++head) {
    usual.weights.insert(usual.weights.end(), row.begin(), row.end());
  }
  return usual;
}

}  // namespace regroup
