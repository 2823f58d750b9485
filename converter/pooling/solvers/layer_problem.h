// What decides how the kv heads of one layer are best shared: their moments, and who reads them.
//
// Shapes: N kv heads of d features.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include <ATen/core/Tensor.h>

#include "converter/pooling/solvers/combination.h"
#include "converter/pooling/solvers/head_moments.h"
#include "converter/pooling/solvers/pool_attention.h"
#include "converter/pooling/solvers/rope_average.h"
#include "converter/pooling/solvers/shared_scores.h"

namespace regroup {

/// Keys and values of the same heads. Keys that rotate can also be looked at as scores see them:
/// more exact than plane by plane, and more work.
struct HeadProblems {
  GroupProblem keys, values;
  std::optional<ScoreProblem> scores = std::nullopt;
};

/// The problems of some of the heads.
HeadProblems part_of(const HeadProblems& problems, std::span<const std::int64_t> heads);

class LayerProblem {
 public:
  /// Keeps references to both. Multiplies queries, keys and values by the covariance: most of the
  /// work there is. Throws kInterrupted soon after `task.stop`, if given, turns true.
  LayerProblem(const AttentionHeads& heads, const PoolingTask& task);

  /// Of `count` kv heads from `first` on, without and with scores where keys rotate.
  HeadProblems problems(std::int64_t first, std::int64_t count) const;
  HeadProblems problems_with_scores(std::int64_t first, std::int64_t count) const;

 private:
  HeadBasis key_basis_, value_basis_;
  HeadMoments keys_, values_;
  at::Tensor key_weight_, value_weight_;     ///< [N, d, d]
  std::optional<RopeAverage> rope_average_;  ///< of the N kv heads
};

/// The shared key head and the shared value head of a group, and what they keep. `chosen`: of
/// kFirst, kRandom and kSelect, counted within the group.
struct HeadSolution {
  Combination heads;
  Energy energy;
};
struct HeadSolutions {
  HeadSolution keys, values;
};
HeadSolutions solve(const HeadProblems& problems, const PoolingTask& task, std::int64_t chosen);

/// Σ_j E|R_j x_j|² of keys and of values: what losses are measured by.
struct HeadEnergies {
  double keys = 0.0, values = 0.0;
};
HeadEnergies energies_of(const HeadProblems& problems);

}  // namespace regroup
