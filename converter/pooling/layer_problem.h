// The problem of one layer, and the loss of a group.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include <ATen/core/Tensor.h>

#include "converter/pooling/combination.h"
#include "converter/pooling/head_moments.h"
#include "converter/pooling/pool_attention.h"

namespace regroup {

// The pooling problem of one layer: moments of its kv heads and weights of their readers.
//
// Shapes: N kv heads of d features.

/// Problems of keys and values of the same heads. Rotated keys can also be compared by attention
/// scores, which is more exact than plane by plane, and more work.
struct HeadProblems {
  GroupProblem keys, values;
  std::optional<ScoreProblem> scores = std::nullopt;
};

/// The problems of some of the heads.
HeadProblems part_of(const HeadProblems& problems, std::span<const std::int64_t> heads);

class LayerProblem {
 public:
  /// Keeps the tensors of `attention`, which are those of `heads` on the task's device, as `inputs`
  /// are the task's of keys and values. Multiplies queries, keys and values by the covariance,
  /// which is most of the work. Throws kInterrupted soon after `task.stop`, if given, turns true.
  LayerProblem(const AttentionHeads& heads, const AttentionTensors& attention,
               const MomentTensors& inputs, const PoolingTask& task);

  /// The problems of `count` kv heads from `first` on, with scores if keys are rotated.
  HeadProblems problems(std::int64_t first, std::int64_t count) const;

 private:
  /// The features that a method may mix. If keys are normalised, it keeps their basis and mixes
  /// all.
  BasisIndices key_basis_, value_basis_;
  HeadMoments keys_, values_;
  at::Tensor key_weight_, value_weight_;     ///< [N, d, d]
  std::optional<RopeAverage> rope_average_;  ///< of the N kv heads
};

/// The shared key and value heads of a group, and their energies. `chosen`: the head of kFirst
/// and kRandom, counted within the group.
struct HeadSolutions {
  HeadSolution keys, values;
};
HeadSolutions solve(const HeadProblems& problems, const PoolingTask& task, std::int64_t chosen);

/// Σ_j E|R_j x_j|² of keys and of values: the denominators of losses.
struct HeadEnergies {
  double keys = 0.0, values = 0.0;
};
HeadEnergies energies_of(const HeadProblems& problems);

/// A part of the layer's energy as a fraction of it.
inline double share_of(double part, double layer) { return layer > 0.0 ? part / layer : 0.0; }

/// The sum of the expected squared errors of the group's keys (in attention scores) and values (in
/// the output), each relative to the expected square of the whole layer. `layer`: of all its heads.
double loss_of(const HeadSolutions& solutions, const HeadEnergies& layer);

/// The loss of `task.method`: for kRandom the average of all heads.
double loss_of_method(const HeadProblems& problems, const PoolingTask& task,
                      const HeadEnergies& layer);

}  // namespace regroup
