// One attention with its projections: from hidden states to what it adds to them.
//
// Shapes: B sequences, T positions, S positions of the encoder's output, D hidden size.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include <ATen/core/Tensor.h>

#include "formats/spec/model_spec.h"
#include "uptrain/model/layers.h"
#include "uptrain/model/parameters.h"
#include "uptrain/ops/attention.h"
#include "uptrain/ops/rope.h"

namespace regroup {

struct CacheStep;
struct LayerCache;

/// The parameters of one attention.
struct AttentionLayer {
  Packing packing = Packing::kSeparate;
  Linear q, k, v, o;  ///< in fused packings q is the whole projection
  std::optional<Norm> q_norm, k_norm;
  std::int64_t kv_heads = 0;
  std::optional<Alibi> alibi;

  bool present() const { return o.present(); }
};

/// Sees what an attention's queries are made of and what it gives, both [B, T, D]; kSelf is a
/// stack's look at itself.
using AttentionObserver =
    std::function<void(AttentionRole, const at::Tensor& input, const at::Tensor& output)>;

/// What one pass through a stack tells its blocks, apart from the hidden states.
struct Pass {
  std::optional<RopeTable> rope;
  at::Tensor mask;     ///< added to self-attention's scores, [1, 1 or H, T, T or S]; or undefined
  bool causal = true;  ///< where there is no mask
  AlibiForm alibi_form = AlibiForm::kBias;
  at::Tensor encoded;  ///< [B, S, D], what cross-attention looks at; or undefined
  /// Where tokens before these are remembered, and these shall be: the step, the same for all
  /// layers, and the keys and values of the next one. Null in a pass over whole sequences.
  const CacheStep* step = nullptr;
  LayerCache* cache = nullptr;
  AttentionObserver on_attention = {};
};

/// The attention of those names, without ALiBi.
AttentionLayer make_attention_layer(const AttentionLayout& names, const ModelSpec& spec,
                                    std::int64_t kv_heads, const Parameters& parameters);

/// Queries, keys and values of x [B, T, D], rotated where RoPE does.
Heads self_attention_heads(const AttentionLayer& layer, const ModelSpec& spec, const at::Tensor& x,
                           const Pass& pass);

/// x: [B, T, D] -> [B, T, D].
at::Tensor self_attention(const AttentionLayer& layer, const ModelSpec& spec, const at::Tensor& x,
                          const Pass& pass);

/// The same with keys and values of `pass.encoded`.
at::Tensor cross_attention(const AttentionLayer& layer, const ModelSpec& spec, const at::Tensor& x,
                           const Pass& pass);

}  // namespace regroup
