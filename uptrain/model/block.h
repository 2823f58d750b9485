// One block of a transformer: attention, cross-attention in a decoder beside an encoder, and an
// MLP, with norms and residuals around them.
//
// Shapes: B sequences, T positions, S positions of the encoder's output, D hidden size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "formats/spec/model_spec.h"
#include "uptrain/model/attention_layer.h"
#include "uptrain/model/layers.h"
#include "uptrain/model/parameters.h"

namespace regroup {

/// The parameters of one block.
struct Block {
  Norm attention_norm;
  AttentionLayer attention;  ///< absent where the block has none
  at::Tensor relative_bias;  ///< [buckets, H]; undefined: the block before's holds here, too
  /// ALiBi's where queries see both sides, fp64 [1, H, 1, 1]; undefined: the block before's.
  at::Tensor symmetric_slopes;
  Norm cross_norm;
  AttentionLayer cross;             ///< absent outside of a decoder beside an encoder
  std::optional<Norm> mlp_norm;     ///< none where the MLP reads what attention reads
  Linear gate, up, down;            ///< all absent where the block has no MLP
  std::vector<at::Tensor> tensors;  ///< all of these once more

  bool has_mlp() const { return up.present(); }
};

/// The block of a layer in the stack that looks at itself in `role`, kSelf or kEncoder.
Block make_block(const ModelSpec& spec, AttentionRole role, std::size_t layer,
                 const Parameters& parameters);

/// Sets the mask that `block` brings for itself and those after it: T5's relative bias, or the
/// symmetric form of ALiBi. Without one the mask stays.
void bring_bias(Pass& pass, const Block& block, const ModelSpec& spec, std::int64_t length,
                bool causal, const at::TensorOptions& options);

/// x: [B, T, D] -> [B, T, D].
at::Tensor run_block(const Block& block, const ModelSpec& spec, const at::Tensor& x,
                     const Pass& pass);

/// The same, and nothing between x and the result is kept for the gradients: see
/// recompute_for_gradients(), but what `pass.on_attention` sees, which is outputs alone. `block`
/// and `spec` must live until they have been computed.
at::Tensor run_block_recomputed(const Block& block, const ModelSpec& spec, const at::Tensor& x,
                                const Pass& pass);

}  // namespace regroup
