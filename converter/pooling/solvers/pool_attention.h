// One layer's heads in, one layer's heads out: fewer keys and values, and the queries and the
// output projection that fit them.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "converter/heads/attention_heads.h"
#include "converter/pooling/inputs/head_basis.h"
#include "converter/pooling/inputs/input_moments.h"
#include "converter/pooling/inputs/key_distances.h"
#include "converter/pooling/inputs/pool_method.h"

namespace regroup {

/// What a method needs to know beside the heads.
struct PoolingTask {
  PoolMethod method = PoolMethod::kLowrank;
  std::int64_t groups = 1;  ///< kv heads that are left: a divisor of those there are
  HeadBasis key_basis;
  InputMoments query_inputs;
  InputMoments kv_inputs;
  KeyDistances distances = {};  ///< where keys rotate; none: every turn is as likely
  /// Of kFirst and kRandom: the head each group keeps; empty: its first.
  std::vector<std::int64_t> chosen = {};
  const std::atomic<bool>* stop = nullptr;  ///< asked for in the course of the work, if given
};

/// What one group keeps of its heads, for keys (as queries see them, each query head counted by how
/// far its values differ in the output: that is how far errors of its scores reach) and values (as
/// they reach the output). Energy: 1 − the expected squared error / the expected square. Norm: of
/// the shared head beside the root mean square of its members'.
struct GroupReport {
  double key_energy = 1.0, value_energy = 1.0;
  double key_norm = 1.0, value_norm = 1.0;
  /// The group's part in the expected square of the layer.
  double key_share = 0.0, value_share = 0.0;
  /// What the group loses, and where the method is kSelect what its mean would: parts of the
  /// layer's energy, of keys and values added.
  double loss = 0.0, loss_of_mean = 0.0;
};

struct PooledAttention {
  AttentionHeads heads;
  std::vector<GroupReport> groups;
};

/// Pools neighbours into `task.groups` kv heads. As many groups as heads change nothing.
///
/// Every method but the mean and the choice of one head changes q and o as well. What a key adds to
/// all scores of a query alike cancels in the softmax, so keys that do not rotate are compared by
/// their covariance; and where o has a bias, it takes up the mean error of the values exactly, of
/// those methods that change o.
/// Throws kInterrupted soon after `task.stop` turns true, kUsage in a build without LibTorch.
PooledAttention pool_attention(const AttentionHeads& heads, const PoolingTask& task);

}  // namespace regroup
