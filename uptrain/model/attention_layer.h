// One attention layer with its projections.
//
// Shapes: B sequences, T positions, S positions of the encoder's output, D hidden size.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
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

struct AttentionLayer {
  Packing packing = Packing::kSeparate;
  Linear q, k, v, o;  ///< in fused packings q is the whole projection
  std::optional<Norm> q_norm, k_norm;
  std::int64_t kv_heads = 0;
  bool without_rope = false;
  std::optional<Alibi> alibi;

  bool present() const { return o.present(); }
};

/// Observes the input of an attention's queries and its output, both [B, T, D]; kSelf is the
/// self-attention of a stack.
using AttentionObserver =
    std::function<void(AttentionRole, const at::Tensor& input, const at::Tensor& output)>;

/// The inputs of a stack's blocks in one pass, apart from the hidden states.
struct Pass {
  std::optional<RopeTable> rope;
  at::Tensor mask;     ///< added to self-attention's scores, [1, 1 or H, T, T or S]; or undefined
  bool causal = true;  ///< used if there is no mask
  std::shared_ptr<SlidingWindow> window;  ///< narrower than the sequence, or null
  AlibiForm alibi_form = AlibiForm::kBias;
  at::Tensor encoded;  ///< [B, S, D], input of cross-attention; or undefined
  /// If the hidden states are those of a part of each sequence: which brings the keys and values of
  /// earlier parts. Null: they are whole.
  const SequencePart* part = nullptr;
  /// Set when decoding with a KV cache: the step, the same for all layers, and the keys and values
  /// of the next layer. Null in a pass over whole sequences.
  const CacheStep* step = nullptr;
  LayerCache* cache = nullptr;
  AttentionObserver on_attention = {};
  RoutingObserver on_routing = {};
};

/// Loads the attention with those tensor names, without ALiBi.
AttentionLayer make_attention_layer(const AttentionLayout& names, const ModelSpec& spec,
                                    std::int64_t kv_heads, const Parameters& parameters);

/// Queries, keys and values of x [B, T, D], with RoPE applied if the model has it.
Heads self_attention_heads(const AttentionLayer& layer, const ModelSpec& spec, const at::Tensor& x,
                           const Pass& pass);

/// x: [B, T, D] -> [B, T, D].
at::Tensor self_attention(const AttentionLayer& layer, const ModelSpec& spec, const at::Tensor& x,
                          const Pass& pass);

/// The same with keys and values of `pass.encoded`.
at::Tensor cross_attention(const AttentionLayer& layer, const ModelSpec& spec, const at::Tensor& x,
                           const Pass& pass);

}  // namespace regroup
