// A block: attention and MLP or experts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "formats/spec/model_spec.h"
#include "uptrain/model/attention_layer.h"
#include "uptrain/model/layers.h"
#include "uptrain/model/parameters.h"
#include "uptrain/ops/rope.h"

namespace regroup {

// Weights that are only there while they are needed: a hook around each block of a model.

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

// One transformer block: attention, cross-attention in the decoder of an encoder-decoder, and an
// MLP, with norms and residuals.
//
// Shapes: B sequences, T positions, S positions of the encoder's output, D hidden size.

struct Block {
  std::optional<Norm> attention_norm;  ///< none in ModernBERT's first block
  AttentionLayer attention;            ///< absent where the block has none
  at::Tensor relative_bias;            ///< [buckets, H]; undefined: reuses the previous block's
  /// ALiBi slopes of bidirectional attention, fp64 [1, H, 1, 1]; undefined: the previous block's.
  at::Tensor symmetric_slopes;
  Norm cross_norm;
  AttentionLayer cross;          ///< only in the decoder of an encoder-decoder
  std::optional<Norm> mlp_norm;  ///< none if the MLP shares attention's norm
  /// All absent if the block has no MLP. If gate and up are fused, `gate` is both.
  Linear gate, up, down;
  /// Of the outputs of attention and MLP, if there are such.
  std::optional<Norm> attention_output_norm, mlp_output_norm;
  ExpertLayer experts;              ///< added to the MLP above, if there is one; or absent
  Linear shared_gate;               ///< its sigmoid scales that MLP; or absent
  std::vector<at::Tensor> tensors;  ///< all of the above
  bool in_window = false;           ///< whether the model's sliding window applies

  bool has_mlp() const { return gate.present() || up.present() || experts.present(); }
};

/// The contexts of one pass through a stack: one for blocks with the model's sliding window, and
/// one for blocks without it.
struct Passes {
  Pass in_window, whole;

  Pass& of(const Block& block) { return block.in_window ? in_window : whole; }
  const Pass& of(const Block& block) const { return block.in_window ? in_window : whole; }
};

/// The block of a layer in the stack whose self-attention is `role`, kSelf or kEncoder.
Block make_block(const ModelSpec& spec, AttentionRole role, std::size_t layer,
                 const Parameters& parameters);

/// Sets the mask that `block` defines for itself and later blocks: T5's relative bias, or the
/// symmetric form of ALiBi. Without one the mask is unchanged.
void bring_bias(Pass& pass, const Block& block, RelativeBuckets& buckets, std::int64_t length,
                bool causal, const at::TensorOptions& options);

/// x: [B, T, D] -> [B, T, D].
at::Tensor run_block(const Block& block, const ModelSpec& spec, const at::Tensor& x,
                     const Pass& pass);

/// The same with activation checkpointing, see recompute_for_gradients(). Only what
/// the observers of `pass` receive is kept; that of attention receives outputs only. `block` and
/// `spec` must outlive the backward pass.
at::Tensor run_block_recomputed(const Block& block, const ModelSpec& spec, const at::Tensor& x,
                                const Pass& pass);

// Activation checkpointing: intermediate results are not kept for the backward pass but recomputed.
// Chen et al. 2016, https://arxiv.org/abs/1604.06174.

/// A function of `inputs` and of weights.
using TensorFunction =
    std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>& inputs)>;

/// function(inputs), with gradients for the inputs and for `weights`, which must be all the leaves
/// that the function uses. Only the results stay in memory. The backward pass calls the function
/// again, so everything it refers to must live until then. Inputs may be undefined.
std::vector<at::Tensor> recompute_for_gradients(const TensorFunction& function,
                                                const std::vector<at::Tensor>& inputs,
                                                const std::vector<at::Tensor>& weights);

}  // namespace regroup
