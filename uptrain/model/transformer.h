// The transformer: computes every family, decoder-only, encoder-only or encoder-decoder, from its
// ModelSpec.
//
// Shapes: B sequences, T positions, S positions of an encoder, D hidden size, V vocabulary.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "formats/spec/model_spec.h"
#include "uptrain/model/block.h"
#include "uptrain/model/layers.h"
#include "uptrain/model/parameters.h"
#include "uptrain/ops/attention.h"
#include "uptrain/ops/loss.h"

namespace regroup {

class KvCache;
struct CacheStep;
struct KvCacheSettings;

class Transformer {
 public:
  /// Computes with the tensors in `parameters` (shared, so training changes them in place), in
  /// their dtype and on their device. Throws kBadInput for a model it cannot compute.
  Transformer(ModelSpec spec, const Parameters& parameters);

  /// The last hidden states of a model with one stack, after the final norm. tokens: int64 [B, T],
  /// of set_sequence_part()'s part -> [B, T, D]. Throws kUsage if the sequences exceed the learned
  /// positions, and for an encoder-decoder.
  at::Tensor hidden_states(const at::Tensor& tokens) const;

  /// The decoder's last hidden states in an encoder-decoder. source: int64 [B, S], encoder tokens;
  /// target: int64 [B, T], decoder tokens -> [B, T, D]. Throws kUsage for a model with one stack.
  at::Tensor hidden_states(const at::Tensor& source, const at::Tensor& target) const;

  /// Hidden states of the tokens that follow those in `cache`, and appends them to it; no
  /// gradients. tokens: int64 [B, T] -> [B, T, D]. Throws as hidden_states() does, and kUsage if
  /// the cache cannot hold them.
  at::Tensor hidden_states(const at::Tensor& tokens, KvCache& cache) const;

  /// An empty cache; in an encoder-decoder, for decoding from `source`, int64 [B, S].
  KvCache make_cache(const KvCacheSettings& settings, const at::Tensor& source = {}) const;

  /// The embeddings of tokens at positions from `first` on: the input of the first block of the
  /// stack with self-attention `stack`. tokens: int64 [B, T] -> [B, T, D]. Throws as
  /// hidden_states() does.
  at::Tensor embed(const at::Tensor& tokens, std::int64_t first = 0,
                   AttentionRole stack = AttentionRole::kSelf) const;

  /// The pass contexts of the (decoder's) stack for sequences of that length.
  Passes make_passes(std::int64_t length) const;

  /// What the last block returns, after the final norm: [B, T, D].
  at::Tensor finished(const at::Tensor& x) const { return finished(stack_, x); }

  /// hidden: [..., D] -> [..., V].
  at::Tensor logits(const at::Tensor& hidden) const;

  /// The mean of -log p(target) over all tokens, see next_token_loss(). hidden: [B, T, D], targets:
  /// int64 [B·T].
  at::Tensor loss(const at::Tensor& hidden, const at::Tensor& targets) const;

  /// The factors of logits(), hidden: [..., D] -> [N, D] and [V, D]. If the output has a bias, both
  /// have one more column: a constant input of 1 and its weight.
  LmHeadInputs lm_head_inputs(const at::Tensor& hidden) const;

  /// The stored output projection [V, D]: the token embedding if the two are tied.
  const at::Tensor& lm_head() const { return lm_head_; }

  const ModelSpec& spec() const { return spec_; }
  at::Device device() const { return token_embedding_.device(); }
  at::ScalarType scalar_type() const { return token_embedding_.scalar_type(); }

  /// Overrides the device's form of ALiBi, for comparisons.
  void set_alibi_form(AlibiForm form) { alibi_form_ = form; }

  /// Activation checkpointing: only the input of each block is kept for the backward pass. Costs
  /// one more forward pass; gradients are the same up to the order of sums.
  void set_recomputing(bool recomputing) { recomputing_ = recomputing; }

  /// Sets what brings and drops the weights of blocks; null: they are always there. It must outlive
  /// all passes.
  void set_block_weights(BlockWeights* weights) { block_weights_ = weights; }

  /// Sets which part of each sequence later passes compute, null: all of it. The tokens that they
  /// get are those of the part. It must outlive all passes. Throws kUsage for a model that needs
  /// whole sequences: one with an encoder, or whose attention is not causal.
  void set_sequence_part(const SequencePart* part);

  const SequencePart* sequence_part() const { return part_; }

  /// Sets an observer for every attention of a pass without a cache, in the order of computation:
  /// the encoder's, then the decoder's. With activation checkpointing it observes outputs only.
  void set_attention_observer(AttentionObserver observer) { on_attention_ = std::move(observer); }

  /// Sets an observer for the routing of every layer with experts, in passes without a cache.
  void set_routing_observer(RoutingObserver observer) { on_routing_ = std::move(observer); }

 private:
  // What a stack adds to the embeddings of its tokens, and their norm.
  struct Embedding {
    at::Tensor positions;  // [positions, D], or undefined: computed or none
    std::optional<Norm> norm;
  };
  struct Stack {
    std::vector<Block> blocks;
    std::optional<Norm> final_norm;
    bool causal = true;
  };

  Embedding make_embedding(const std::string& positions, const NormTensors& norm,
                           const Parameters& parameters) const;
  std::int64_t first_position(std::int64_t length) const;
  at::Tensor positions_of(const Embedding& own, std::int64_t first, std::int64_t length) const;

  Stack make_stack(AttentionRole role, const NormTensors& final_norm,
                   const Parameters& parameters) const;
  at::Tensor encode(const at::Tensor& source) const;
  Pass pass_of(const CacheStep& step, const KvCache& cache) const;
  at::Tensor run_stack(const Stack& stack, const at::Tensor& embedded,
                       const at::Tensor& encoded) const;
  at::Tensor run_blocks(const Stack& stack, at::Tensor x, Passes& passes, KvCache* cache) const;
  at::Tensor finished(const Stack& stack, const at::Tensor& x) const;
  at::Tensor head_input(const at::Tensor& hidden) const;
  at::Tensor head_weight() const;

  ModelSpec spec_;
  at::Tensor token_embedding_;       // [V, D]
  at::Tensor token_type_embedding_;  // [types, D], or undefined
  Linear project_in_, project_out_;
  Embedding encoder_embedding_, embedding_;
  Stack encoder_;  // empty except in an encoder-decoder
  Stack stack_;
  Linear head_transform_;
  Norm head_norm_;
  at::Tensor lm_head_;    // [V, D]
  at::Tensor head_bias_;  // [V] or [1, V], or undefined
  AlibiForm alibi_form_;
  // The first pass makes these and later passes share them, so no two threads may use one object.
  mutable RelativeBuckets relative_buckets_;
  mutable std::shared_ptr<SlidingWindow> window_;
  // The tables of the last length. All batches of a run have the same length.
  mutable std::int64_t rope_length_ = -1;  // of sequences or their parts
  mutable RopeTable rope_, window_rope_;
  mutable at::Tensor sinusoids_;  // of the first positions, or undefined
  bool recomputing_ = false;
  BlockWeights* block_weights_ = nullptr;
  const SequencePart* part_ = nullptr;
  AttentionObserver on_attention_;
  RoutingObserver on_routing_;
};

}  // namespace regroup
