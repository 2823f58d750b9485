#include "converter/pooling/select.h"

#include <algorithm>
#include <cstddef>
#include <span>

namespace regroup {
namespace {

// The second moments of single inputs: a metric to compare weights in.
std::vector<double> input_powers(const InputMoments& inputs) {
  const std::size_t width = inputs.mean.size();
  std::vector<double> powers(width);
  for (std::size_t i = 0; i < width; ++i) {
    const double variance =
        inputs.covariance.empty() ? inputs.variance[i] : inputs.covariance[i * width + i];
    powers[i] = variance + inputs.mean[i] * inputs.mean[i];
  }
  return powers;
}

// Σ p_i (a_i − b_i)² over one head's features, `b` empty: Σ p_i a_i².
double distance(std::span<const double> a, std::span<const double> b,
                std::span<const double> powers) {
  double sum = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double difference = a[i] - (b.empty() ? 0.0 : b[i]);
    sum += powers[i % powers.size()] * difference * difference;
  }
  return sum;
}

// Distances of one kind of heads to all others of the group, added to `sums`.
void add_distances(const DenseLinear& linear, std::int64_t first, std::int64_t head_dim,
                   std::span<const double> powers, std::vector<double>& sums) {
  const auto size = static_cast<std::size_t>(head_dim * linear.inputs);
  const auto head = [&](std::size_t j) {
    return std::span(linear.weight).subspan((static_cast<std::size_t>(first) + j) * size, size);
  };
  double all = 0.0;
  for (std::size_t i = 0; i < sums.size(); ++i) {
    all += distance(head(i), {}, powers);
  }
  for (std::size_t i = 0; i < sums.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      const double apart = all > 0.0 ? distance(head(i), head(j), powers) / all : 0.0;
      sums[i] += apart;
      sums[j] += apart;
    }
  }
}

}  // namespace

std::vector<std::int64_t> select_heads(const AttentionHeads& heads, std::int64_t groups,
                                       const InputMoments& inputs) {
  const std::int64_t members = heads.kv_heads / groups;
  const std::vector<double> powers = input_powers(inputs);
  std::vector<std::int64_t> chosen;
  for (std::int64_t first = 0; first < heads.kv_heads; first += members) {
    std::vector<double> sums(static_cast<std::size_t>(members), 0.0);
    add_distances(heads.k, first, heads.head_dim, powers, sums);
    add_distances(heads.v, first, heads.head_dim, powers, sums);
    chosen.push_back(first + (std::min_element(sums.begin(), sums.end()) - sums.begin()));
  }
  return chosen;
}

}  // namespace regroup
