// Scores of keys with RoPE: averages over distances compared with explicit sums, and the best
// shared key.
#include <cmath>
#include <limits>
#include <numeric>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/zeros_like.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "converter/heads/calibration.h"
#include "converter/pooling/combination.h"
#include "tests/converter/pooling/small_attention.h"

namespace regroup {
namespace {

constexpr std::int64_t kHeads = 3, kFeatures = 6, kDistances = 7;
constexpr double kEpsilon = std::numeric_limits<double>::epsilon();

// Of an average over distances that sum to 1, relative to the largest number averaged: two products
// of matrices, a sum over distances, and angles of up to kDistances radians, in two computations.
constexpr double kAverageRounding =
    2.0 * static_cast<double>(2 * kFeatures * kFeatures + 2 * kDistances) * kEpsilon;

// Of a sum of energies, relative to the energies of all heads: a product for each pair of features
// of all heads at each distance, in two computations.
constexpr double kEnergyRounding =
    2.0 * static_cast<double>(kHeads * kFeatures * kHeads * kFeatures * kDistances) * kEpsilon;

// solve_scores() stops when a sweep gains less than this fraction of the error.
constexpr double kSmallestChange = 1e-3;

// Planes (0, 3) and (4, 1), and two features that do not rotate.
HeadBasis partial_basis() {
  return {.rope_planes = {{0, 3}, {4, 1}}, .free = {2, 5}, .frequencies = {1.0, 0.2}};
}

// Each head's attention at every distance. Rows sum to 1.
at::Tensor random_distances(RandomNumbers& random) {
  const at::Tensor positive = random({kHeads, kDistances}).square();
  return positive / positive.sum(1, true);
}

// S_t by the definition of the rotation: from a key to the query t positions after it.
at::Tensor turn(const HeadBasis& basis, std::int64_t t) {
  at::Tensor matrix = at::eye(kFeatures, at::kDouble);
  for (std::size_t p = 0; p < basis.rope_planes.size(); ++p) {
    const auto [a, b] = basis.rope_planes[p];
    const double angle = -basis.frequencies[p] * static_cast<double>(t);
    matrix[a][a] = matrix[b][b] = std::cos(angle);
    matrix[a][b] = -std::sin(angle);
    matrix[b][a] = std::sin(angle);
  }
  return matrix;
}

at::Tensor square_of(const at::Tensor& root) { return at::matmul(root, root.transpose(-1, -2)); }

ScoreProblem random_problem(const HeadBasis& basis, const at::Tensor& distances,
                            RandomNumbers& random) {
  const std::int64_t rows = kHeads * kFeatures;
  const at::Tensor mean = random({kHeads, kFeatures});
  const at::Tensor covariance = square_of(random({rows, rows}));
  const at::Tensor flat = mean.reshape({rows});
  return {(covariance + flat.unsqueeze(1) * flat).view({kHeads, kFeatures, kHeads, kFeatures}),
          mean, square_of(random({kHeads, kFeatures, kFeatures})), RopeAverage(basis, distances)};
}

at::Tensor wide(const at::Tensor& mix) {
  return mix.transpose(0, 1).reshape({kFeatures, kHeads * kFeatures});
}

// The error of the scores, summed over distances.
double lost_by_definition(const ScoreProblem& problem, const HeadBasis& basis,
                          const at::Tensor& distances, const Combination& combination) {
  const std::int64_t rows = kHeads * kFeatures;
  const at::Tensor second = problem.gram.reshape({rows, rows});
  const at::Tensor mean = problem.mean.reshape({rows});
  double lost = 0.0;
  for (std::int64_t j = 0; j < kHeads; ++j) {
    at::Tensor squares = at::zeros_like(problem.weight.select(0, j));
    at::Tensor means = at::zeros_like(problem.mean.select(0, j));
    for (std::int64_t t = 0; t < kDistances; ++t) {
      const at::Tensor s = turn(basis, t);
      at::Tensor own = at::zeros_like(wide(combination.mix));
      own.narrow(1, j * kFeatures, kFeatures).copy_(s);
      const at::Tensor error =
          own - at::matmul(combination.back.select(0, j), at::matmul(s, wide(combination.mix)));
      squares += distances[j][t] * at::matmul(error, at::matmul(second, error.t()));
      means += distances[j][t] * at::matmul(error, mean);
    }
    lost +=
        (problem.weight.select(0, j) * (squares - means.unsqueeze(1) * means)).sum().item<double>();
  }
  return lost;
}

Combination equal_parts() {
  const at::Tensor one = at::eye(kFeatures, at::kDouble).repeat({kHeads, 1, 1});
  return {one / static_cast<double>(kHeads), one};
}

TEST_CASE("averages over distances equal explicit sums", "[converter]") {
  RandomNumbers random(1);
  const HeadBasis basis = partial_basis();
  const at::Tensor distances = random_distances(random);
  const bool both_sides = GENERATE(false, true);
  CAPTURE(both_sides);
  const RopeAverage rope(basis, distances, both_sides);
  const at::Tensor matrices = random({kHeads, kFeatures, kFeatures});
  for (std::int64_t j = 0; j < kHeads; ++j) {
    const at::Tensor one = matrices.select(0, j);
    at::Tensor seen = at::zeros_like(one), unseen = at::zeros_like(one), mean = at::zeros_like(one);
    for (std::int64_t t = both_sides ? 1 - kDistances : 0; t < kDistances; ++t) {
      const at::Tensor s = turn(basis, t);
      const at::Tensor share = distances[j][std::abs(t)] / (both_sides && t != 0 ? 2 : 1);
      mean += share * s;
      seen += share * at::matmul(s, at::matmul(one, s.t()));
      unseen += share * at::matmul(s.t(), at::matmul(one, s));
    }
    const double rounding = kAverageRounding * std::max(1.0, one.abs().max().item<double>());
    CHECK(distance(rope.mean().select(0, j), mean) < rounding);
    CHECK(distance(rope.seen(matrices).select(0, j), seen) < rounding);
    CHECK(distance(rope.unseen(matrices).select(0, j), unseen) < rounding);
    const at::Tensor part = rope.of(at::arange(j, j + 1)).seen(matrices.narrow(0, j, 1));
    CHECK(distance(part.select(0, 0), seen) < rounding);
  }
}

TEST_CASE("the error of scores equals its sum over distances", "[converter]") {
  RandomNumbers random(2);
  const HeadBasis basis = partial_basis();
  const at::Tensor distances = random_distances(random);
  const ScoreProblem problem = random_problem(basis, distances, random);
  const Combination any{random({kHeads, kFeatures, kFeatures}),
                        random({kHeads, kFeatures, kFeatures})};
  const Combination nothing{at::zeros_like(any.mix), at::zeros_like(any.back)};
  const auto lost = [&](const Combination& combination) {
    return lost_by_definition(problem, basis, distances, combination);
  };
  CHECK(std::abs(energy_of(problem, any).lost / lost(any) - 1.0) < kEnergyRounding);
  CHECK(std::abs(energy_of(problem) / lost(nothing) - 1.0) < kEnergyRounding);
  CHECK(std::abs(energy_of(problem, any).all / lost(nothing) - 1.0) < kEnergyRounding);
}

TEST_CASE("small changes do not improve the solved scores", "[converter]") {
  RandomNumbers random(3);
  const HeadBasis basis = partial_basis();
  const ScoreProblem problem = random_problem(basis, random_distances(random), random);
  const Combination solved = solve_scores(problem, equal_parts());
  const Energy energy = energy_of(problem, solved);
  CHECK(energy.lost < 0.9 * energy_of(problem, equal_parts()).lost);
  CHECK(std::abs(energy.norm() - 1.0) < kEnergyRounding);
  for (int trial = 0; trial < 20; ++trial) {
    const at::Tensor change = 1e-3 * random({kHeads, kFeatures, kFeatures});
    CHECK(energy_of(problem, {solved.mix, solved.back + change}).lost > energy.lost);
    CHECK(energy_of(problem, {solved.mix + change, solved.back}).lost >
          (1.0 - kSmallestChange) * energy.lost);
  }
}

TEST_CASE("keys at distance zero are solved for as keys without RoPE", "[converter]") {
  RandomNumbers random(4);
  at::Tensor distances = at::zeros_like(random_distances(random));
  distances.select(1, 0).fill_(1.0);
  ScoreProblem problem = random_problem(partial_basis(), distances, random);
  // The mean does not count without rotation.
  const at::Tensor flat = problem.mean.reshape({-1});
  const at::Tensor covariance =
      problem.gram - (flat.unsqueeze(1) * flat).view(problem.gram.sizes());
  const FreeProblem free{covariance, problem.weight};
  const double best =
      energy_of(problem) -
      energy_kept_by_lowrank({BasisIndices(free_basis(kFeatures), at::kCPU), free, std::nullopt});
  const double found = energy_of(problem, solve_scores(problem, equal_parts())).lost;
  CHECK(found > best - kEnergyRounding * energy_of(problem));
  // Sweeps that gain less than kSmallestChange could still gain this much in all.
  CHECK(found < best * (1.0 + 50 * kSmallestChange));
}

TEST_CASE("attention spread over many distances does not mix RoPE planes", "[converter]") {
  RandomNumbers random(5);
  const HeadBasis basis = partial_basis();
  constexpr double kMany = 20000.0;
  const at::Tensor everywhere =
      random({kHeads, static_cast<std::int64_t>(kMany)}) * 0.0 + 1.0 / kMany;
  const at::Tensor matrices = random({kHeads, kFeatures, kFeatures});
  const at::Tensor seen = RopeAverage(basis, everywhere).seen(matrices);
  // |Σ_t e^{iθt}| <= 1 / sin(θ/2), and the smallest angle is that of the slower plane. A product of
  // two rotations has four terms.
  const double mixed = 4.0 * matrices.abs().max().item<double>() /
                       (kMany * std::sin(basis.frequencies.back() / 2.0));
  for (const auto& [a, b] : basis.rope_planes) {
    for (std::int64_t other = 0; other < kFeatures; ++other) {
      if (other != a && other != b) {
        CHECK(seen.select(1, a).select(1, other).abs().max().item<double>() < mixed);
      }
    }
    CHECK(distance(seen.select(1, a).select(1, a), seen.select(1, b).select(1, b)) < mixed);
  }
}

TEST_CASE("distances follow the head order and the default ones decrease", "[converter]") {
  const KeyDistances distances{2, {0.9, 0.1, 0.5, 0.5, 0.2, 0.8}};
  const std::vector<std::int64_t> order = {2, 0, 1};
  CHECK(distances.in_order(order).weights == std::vector<double>{0.2, 0.8, 0.9, 0.1, 0.5, 0.5});
  ModelSpec spec;
  spec.query_heads = 2;
  spec.max_positions = 5;
  const KeyDistances usual = usual_distances(spec);
  REQUIRE(usual.weights.size() == 10);
  // Five weights, each divided by their sum.
  CHECK(std::abs(std::accumulate(usual.weights.begin(), usual.weights.begin() + 5, 0.0) - 1.0) <
        10 * kEpsilon);
  CHECK(std::abs(usual.weights[3] / usual.weights[0] - 0.125) < 2 * kEpsilon);
  CHECK(usual.weights[5] == usual.weights[0]);
}

}  // namespace
}  // namespace regroup
