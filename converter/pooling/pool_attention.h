// Pools one layer: fewer keys and values, with matching query and output projections.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "converter/heads/calibration.h"
#include "converter/heads/heads.h"
#include "converter/heads/pool_method.h"

namespace regroup {

/// The inputs of a method besides the heads.
struct PoolingTask {
  PoolMethod method = PoolMethod::kLowrank;
  std::int64_t groups = 1;  ///< remaining kv heads: a divisor of the present number
  HeadBasis key_basis;
  InputMoments query_inputs;
  InputMoments kv_inputs;
  KeyDistances distances = {};  ///< for rotated keys; none: all rotations are equally likely
  /// For kFirst and kRandom: the head that each group keeps; empty: its first.
  std::vector<std::int64_t> chosen = {};
  const std::atomic<bool>* stop = nullptr;  ///< checked during the work, if given
  std::string device = "cpu";               ///< where to solve, as LibTorch names it: "cuda:1"
};

/// What one group keeps of its heads. Keys are measured as queries see them: each query head is
/// weighted by how much its values differ in the output, since score errors have that effect.
/// Values are measured in the output. Energy: 1 − expected squared error / expected square. Norm:
/// of the shared head relative to the root mean square of its members' norms.
struct GroupReport {
  double key_energy = 1.0, value_energy = 1.0;
  double key_norm = 1.0, value_norm = 1.0;
  /// The group's fraction of the expected square of the layer.
  double key_share = 0.0, value_share = 0.0;
  double loss = 0.0;  ///< as fractions of the layer's energy, keys and values added
};

struct PooledAttention {
  AttentionHeads heads;
  std::vector<GroupReport> groups;
};

/// Pools neighbours into `task.groups` kv heads. With as many groups as heads nothing changes.
///
/// All methods except the mean and the choice of one head also change q and o. A constant added to
/// all scores of a query cancels in the softmax, so keys without RoPE are compared by their
/// covariance. In methods that change o, a bias of o absorbs the mean error of the values exactly.
/// On another device than the CPU, sums are taken in another order, so results differ by rounding.
/// Throws kInterrupted soon after `task.stop` turns true, kUsage in a build without LibTorch.
PooledAttention pool_attention(const AttentionHeads& heads, const PoolingTask& task);

// Finds the kv heads of a layer that lose least when they share one.

/// A layer's partition with its loss, and the loss of the contiguous one: fractions of the layer's
/// energy (GroupReport), keys and values added, so at most 2.
struct SimilarHeads {
  Partition partition;
  double loss = 0.0;
  double contiguous_loss = 0.0;
};

/// The result of similar_partition() with the loss of `task.method` as the cost of a group. Throws
/// as pool_attention() does.
SimilarHeads find_similar_heads(const AttentionHeads& heads, const PoolingTask& task);

/// What `task.method` loses in each of `groups`, as a fraction of the layer's energy (see
/// SimilarHeads). Throws the same.
std::vector<double> losses_of_groups(const AttentionHeads& heads, const PoolingTask& task,
                                     const std::vector<HeadGroup>& groups);

}  // namespace regroup
