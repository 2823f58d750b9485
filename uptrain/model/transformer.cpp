#include "uptrain/model/transformer.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/ones.h>

#include "formats/base/error.h"
#include "uptrain/model/kv_cache.h"
#include "uptrain/model/language_model.h"
#include "uptrain/ops/rope.h"

namespace regroup {
Transformer::Transformer(ModelSpec spec, const Parameters& parameters)
    : spec_(std::move(spec)),
      token_embedding_(parameters.at(spec_.token_embedding)),
      token_type_embedding_(tensor_or_none(spec_.token_type_embedding, parameters)),
      project_in_(make_linear(spec_.project_in, parameters)),
      project_out_(make_linear(spec_.project_out, parameters)),
      head_transform_(make_linear(spec_.head_transform, parameters)),
      head_norm_(make_norm(spec_.head_norm, spec_, parameters)),
      lm_head_(spec_.lm_head.empty() ? token_embedding_ : parameters.at(spec_.lm_head)),
      head_bias_(tensor_or_none(spec_.lm_head_bias, parameters)),
      alibi_form_(Alibi::best_form(token_embedding_.device())),
      relative_buckets_(spec_.relative_bias) {
  check_computable(spec_);
  encoder_embedding_ =
      make_embedding(spec_.encoder_position_embedding, spec_.encoder_embedding_norm, parameters);
  embedding_ = make_embedding(spec_.position_embedding, spec_.embedding_norm, parameters);
  if (spec_.has_encoder()) {
    encoder_ = make_stack(AttentionRole::kEncoder, spec_.encoder_final_norm, parameters);
  }
  stack_ = make_stack(AttentionRole::kSelf, spec_.final_norm, parameters);
}

Transformer::Embedding Transformer::make_embedding(const std::string& positions,
                                                   const NormTensors& norm,
                                                   const Parameters& parameters) const {
  return {tensor_or_none(positions, parameters),
          norm.present() ? std::optional(make_norm(norm, spec_, parameters)) : std::nullopt};
}

Transformer::Stack Transformer::make_stack(AttentionRole role, const NormTensors& final_norm,
                                           const Parameters& parameters) const {
  Stack stack;
  stack.causal = role == AttentionRole::kSelf && spec_.causal;
  for (std::size_t layer = 0; layer < spec_.stack(role).size(); ++layer) {
    stack.blocks.push_back(make_block(spec_, role, layer, parameters));
  }
  if (final_norm.present() || spec_.norm_without_parameters) {
    stack.final_norm = make_norm(final_norm, spec_, parameters);
  }
  return stack;
}

at::Tensor Transformer::hidden_states(const at::Tensor& tokens) const {
  if (spec_.has_encoder()) {
    throw_usage("an encoder-decoder takes two sequences, one for the encoder");
  }
  return run_stack(stack_, embed(tokens, first_position(tokens.size(1))), {});
}

void Transformer::set_sequence_part(const SequencePart* part) {
  if (part != nullptr) {
    check_takes_parts(spec_);
  }
  part_ = part;
  rope_length_ = -1;
}

// The position of the first of so many tokens.
std::int64_t Transformer::first_position(std::int64_t length) const {
  return part_ != nullptr ? part_->first(length) : 0;
}

at::Tensor Transformer::hidden_states(const at::Tensor& source, const at::Tensor& target) const {
  if (!spec_.has_encoder()) {
    throw_usage("only encoder-decoder models take two sequences");
  }
  return run_stack(stack_, embed(target), encode(source));
}

at::Tensor Transformer::encode(const at::Tensor& source) const {
  return run_stack(encoder_, embed(source, 0, AttentionRole::kEncoder), {});
}

at::Tensor Transformer::run_stack(const Stack& stack, const at::Tensor& embedded,
                                  const at::Tensor& encoded) const {
  Passes passes = make_passes(embedded.size(1));
  for (Pass* pass : {&passes.in_window, &passes.whole}) {
    pass->causal = stack.causal;
    pass->encoded = encoded;
    pass->on_attention = on_attention_;
    pass->on_routing = on_routing_;
    pass->part = part_;
  }
  return run_blocks(stack, embedded, passes, nullptr);
}

Pass Transformer::pass_of(const CacheStep& step, const KvCache& cache) const {
  Pass pass;
  pass.alibi_form = alibi_form_;
  pass.encoded = cache.encoded();
  pass.step = &step;
  pass.rope = step.rope;
  pass.mask = step.mask;
  if (step.window) {
    pass.window = std::make_shared<SlidingWindow>(*step.window, token_embedding_.options());
  }
  return pass;
}

at::Tensor Transformer::hidden_states(const at::Tensor& tokens, KvCache& cache) const {
  const at::NoGradGuard no_gradients;
  const std::int64_t first = cache.length();
  const CacheSteps steps = cache.step(tokens.size(1));
  Passes passes{pass_of(steps.in_window, cache), pass_of(steps.whole, cache)};
  const at::Tensor x = run_blocks(stack_, embed(tokens, first), passes, &cache);
  cache.advance(tokens.size(1));
  return x;
}

KvCache Transformer::make_cache(const KvCacheSettings& settings, const at::Tensor& source) const {
  KvCache cache(spec_, settings, token_embedding_.options());
  if (spec_.has_encoder() != source.defined()) {
    throw_usage("encoder-decoder models need source tokens; decoder-only models take none");
  }
  if (source.defined()) {
    const at::NoGradGuard no_gradients;
    cache.set_encoded(encode(source));
  }
  return cache;
}

at::Tensor Transformer::run_blocks(const Stack& stack, at::Tensor x, Passes& passes,
                                   KvCache* cache) const {
  const auto run = recomputing_ && at::GradMode::is_enabled() ? run_block_recomputed : run_block;
  const std::size_t before = &stack == &stack_ ? encoder_.blocks.size() : 0;
  for (std::size_t i = 0; i < stack.blocks.size(); ++i) {
    const Block& block = stack.blocks[i];
    Pass& pass = passes.of(block);
    pass.cache = cache != nullptr ? &cache->layer(i) : nullptr;
    if (block_weights_ != nullptr) {
      x = enter_block(*block_weights_, before + i, x);
    }
    bring_bias(pass, block, relative_buckets_, x.size(1), stack.causal, token_embedding_.options());
    x = run(block, spec_, x, pass);
    if (block_weights_ != nullptr) {
      x = leave_block(*block_weights_, before + i, x);
    }
  }
  return finished(stack, x);
}

at::Tensor Transformer::finished(const Stack& stack, const at::Tensor& x) const {
  const at::Tensor normalised = stack.final_norm ? (*stack.final_norm)(x) : x;
  return project_out_.present() ? project_out_(normalised) : normalised;
}

// The input of the output projection.
at::Tensor Transformer::head_input(const at::Tensor& hidden) const {
  if (head_transform_.present()) {
    const Activation activation = spec_.head_activation.value_or(spec_.activation);
    return head_norm_(activate(activation, head_transform_(hidden)));
  }
  return spec_.output_scale == 1.0 ? hidden : hidden * spec_.output_scale;
}

at::Tensor Transformer::head_weight() const {
  constexpr double kLeastNorm = 1e-12;  // so that rows of zeros stay zeros
  return spec_.lm_head_normalised
             ? lm_head_ / at::linalg_vector_norm(lm_head_, 2, {1}, true).clamp_min(kLeastNorm)
             : lm_head_;
}

at::Tensor Transformer::logits(const at::Tensor& hidden) const {
  const at::Tensor bias = head_bias_.defined() ? head_bias_.flatten() : head_bias_;
  return softcapped(Linear{head_weight(), bias}(head_input(hidden)), spec_.logit_softcap);
}

at::Tensor Transformer::loss(const at::Tensor& hidden, const at::Tensor& targets) const {
  return next_token_loss(lm_head_inputs(hidden), targets);
}

LmHeadInputs Transformer::lm_head_inputs(const at::Tensor& hidden) const {
  const at::Tensor flat = head_input(hidden.flatten(0, -2));  // [N, D]
  if (!head_bias_.defined()) {
    return {flat, head_weight(), spec_.logit_softcap};
  }
  const at::Tensor ones = at::ones({flat.size(0), 1}, flat.options().requires_grad(false));
  return {at::cat({flat, ones}, 1), at::cat({head_weight(), head_bias_.view({-1, 1})}, 1),
          spec_.logit_softcap};
}

Passes Transformer::make_passes(std::int64_t length) const {
  const std::int64_t first = first_position(length);
  const std::int64_t context = part_ != nullptr ? length * part_->parts() : length;
  Passes passes;
  Pass& whole = passes.whole;
  whole.alibi_form = alibi_form_;
  if (spec_.positions == PositionKind::kRope) {
    if (rope_length_ != length) {
      const auto table_of = [&](const RopeSpec& rope) {
        return make_rope_table(rope, first, length, context, token_embedding_.options());
      };
      rope_ = table_of(spec_.rope);
      window_rope_ = spec_.window_rope ? table_of(*spec_.window_rope) : rope_;
      rope_length_ = length;
    }
    whole.rope = rope_;
  }
  passes.in_window = whole;
  if (whole.rope) {
    passes.in_window.rope = window_rope_;
  }
  if (spec_.sliding_window && first + length > *spec_.sliding_window) {
    if (!window_) {
      window_ = std::make_shared<SlidingWindow>(*spec_.sliding_window, token_embedding_.options(),
                                                spec_.causal);
    }
    passes.in_window.window = window_;
  }
  return passes;
}

// The embeddings of `length` positions from `first` on, [length, D]; undefined if there are none.
at::Tensor Transformer::positions_of(const Embedding& own, std::int64_t first,
                                     std::int64_t length) const {
  const bool computed = spec_.positions == PositionKind::kSinusoidal && !own.positions.defined();
  if (!computed && !own.positions.defined()) {
    return {};
  }
  const std::int64_t positions =
      computed ? spec_.max_positions.value() : own.positions.size(0) - spec_.position_offset;
  if (first + length > positions) {
    throw_usage("sequences of {} tokens: the model has {} positions for {} only", first + length,
                name_of(spec_.positions), positions);
  }
  if (!computed) {
    return own.positions.narrow(0, spec_.position_offset + first, length);
  }
  if (!sinusoids_.defined() || sinusoids_.size(0) < first + length) {
    constexpr std::int64_t kAhead = 1024;  // each step of decoding needs one more
    sinusoids_ = sinusoids(spec_.position_offset, first + length + kAhead, spec_.hidden_size,
                           spec_.sinusoids.steps, token_embedding_.options().requires_grad(false));
  }
  return sinusoids_.narrow(0, first, length);
}

at::Tensor Transformer::embed(const at::Tensor& tokens, std::int64_t first,
                              AttentionRole stack) const {
  const Embedding& own = stack == AttentionRole::kEncoder ? encoder_embedding_ : embedding_;
  check_length(spec_, part_ != nullptr ? part_->parts() * tokens.size(1) : first + tokens.size(1));
  if (block_weights_ != nullptr) {
    block_weights_->begin_pass();
  }
  at::Tensor x = at::embedding(token_embedding_, tokens);  // [B, T] -> [B, T, D]
  if (project_in_.present() && !spec_.projected_last) {
    x = project_in_(x);
  }
  if (spec_.embedding_scale != 1.0) {
    x = x * spec_.embedding_scale;
  }
  if (token_type_embedding_.defined()) {
    x = x + token_type_embedding_.select(0, 0);  // all tokens are of the first text of a pair
  }
  if (const at::Tensor positions = positions_of(own, first, tokens.size(1)); positions.defined()) {
    x = x + positions;
  }
  x = own.norm ? (*own.norm)(x) : x;
  return spec_.projected_last ? project_in_(x) : x;
}

}  // namespace regroup
