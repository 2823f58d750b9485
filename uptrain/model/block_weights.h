// Weights that are only there while they are needed: a hook around each block of a model.
#pragma once

#include <cstddef>

#include <ATen/core/Tensor.h>

namespace regroup {

/// Brings the weights of a model's blocks before they compute and drops them afterwards, forward
/// and backward. Blocks are counted over all stacks, the encoder's first. Passes may only differ in
/// what is computed, not in the order of blocks.
class BlockWeights {
 public:
  virtual ~BlockWeights() = default;

  enum class Direction { kForward, kBackward };

  /// Brings the weights outside blocks. Called before every pass.
  virtual void begin_pass() = 0;

  /// Brings the weights of a block, and may begin with those of the next one in that direction.
  virtual void bring(std::size_t block, Direction direction) = 0;

  /// The block has been computed in that direction. `again`: its backward pass will follow.
  virtual void drop(std::size_t block, Direction direction, bool again) = 0;
};

/// The input of a block, x: brings its weights now, and drops them once the backward pass has the
/// gradient of x. `weights` must outlive the backward pass.
at::Tensor enter_block(BlockWeights& weights, std::size_t block, const at::Tensor& x);

/// The output of a block, x: drops its weights now, and brings them before the backward pass needs
/// them.
at::Tensor leave_block(BlockWeights& weights, std::size_t block, const at::Tensor& x);

}  // namespace regroup
