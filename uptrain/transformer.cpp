#include "uptrain/transformer.h"

#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/rms_norm.h>
#include <ATen/ops/silu.h>

#include "formats/error.h"
#include "formats/printable.h"
#include "uptrain/rope.h"

namespace regroup {
namespace {

std::optional<at::Tensor> optional(const at::Tensor& tensor) {
  return tensor.defined() ? std::optional(tensor) : std::nullopt;
}

at::Tensor tensor_or_none(const std::string& name, const Parameters& parameters) {
  return name.empty() ? at::Tensor() : parameters.at(name);
}

Linear make_linear(const LinearTensors& names, const Parameters& parameters) {
  if (!names.present()) {
    return {};
  }
  return {parameters.at(names.weight), tensor_or_none(names.bias, parameters), names.input_major};
}

void check_computable(const ModelSpec& spec) {
  if (!spec.not_computable.empty()) {
    throw_bad_input("{}: cannot be computed: {}", printable(spec.architecture),
                    printable(spec.not_computable));
  }
}

}  // namespace

// What one pass needs to know of positions.
struct Transformer::Positions {
  std::optional<RopeTable> rope;
  at::Tensor mask;  // [1, 1, T, T], or undefined for plain causal attention
};

at::Tensor Linear::operator()(const at::Tensor& x) const {
  return at::linear(x, input_major ? weight.t() : weight, optional(bias));
}

at::Tensor Norm::operator()(const at::Tensor& x) const {
  if (kind == NormKind::kRmsNorm) {
    return at::rms_norm(x, weight.sizes(), weight, epsilon);
  }
  return at::layer_norm(x, weight.sizes(), weight, optional(bias), epsilon);
}

Transformer::Transformer(ModelSpec spec, const Parameters& parameters)
    : spec_(std::move(spec)),
      token_embedding_(parameters.at(spec_.token_embedding)),
      position_embedding_(tensor_or_none(spec_.position_embedding, parameters)),
      head_(spec_.lm_head.empty() ? token_embedding_ : parameters.at(spec_.lm_head)),
      alibi_form_(Alibi::best_form(token_embedding_.device())) {
  check_computable(spec_);
  if (spec_.embedding_norm.present()) {
    embedding_norm_ = make_norm(spec_.embedding_norm, parameters);
  }
  if (spec_.final_norm.present()) {
    final_norm_ = make_norm(spec_.final_norm, parameters);
  }
  for (std::int64_t layer = 0; layer < spec_.layer_count(); ++layer) {
    blocks_.push_back(make_block(spec_.layers[layer], layer, parameters));
  }
  if (spec_.positions == PositionKind::kAlibi) {
    const auto slopes = alibi_slopes_per_layer(spec_);
    for (std::size_t layer = 0; layer < blocks_.size(); ++layer) {
      blocks_[layer].alibi.emplace(slopes[layer], spec_.head_dim, token_embedding_.options());
    }
  }
}

Norm Transformer::make_norm(const NormTensors& names, const Parameters& parameters) const {
  return {parameters.at(names.weight), tensor_or_none(names.bias, parameters), spec_.norm,
          spec_.norm_epsilon};
}

Transformer::Block Transformer::make_block(const LayerTensors& names, std::int64_t layer,
                                           const Parameters& parameters) const {
  Block block;
  block.attention_norm = make_norm(names.attention_norm, parameters);
  block.mlp_norm = make_norm(names.mlp_norm, parameters);
  block.packing = names.attention.packing;
  block.q = make_linear(names.attention.q, parameters);
  if (block.packing == Packing::kSeparate) {
    block.k = make_linear(names.attention.k, parameters);
    block.v = make_linear(names.attention.v, parameters);
  }
  block.o = make_linear(names.attention.o, parameters);
  block.gate = make_linear(names.gate, parameters);
  block.up = make_linear(names.up, parameters);
  block.down = make_linear(names.down, parameters);
  block.kv_heads = spec_.kv_heads[layer];
  return block;
}

at::Tensor Transformer::hidden_states(const at::Tensor& tokens) const {
  const Positions positions = make_positions(tokens.size(1));
  at::Tensor x = embed(tokens);  // [B, T, D]
  for (const Block& block : blocks_) {
    const at::Tensor attention_input = block.attention_norm(x);
    x = (spec_.residual_after_norm ? attention_input : x) +
        attention(block, attention_input, positions);
    const at::Tensor mlp_input = block.mlp_norm(x);
    x = (spec_.residual_after_norm ? mlp_input : x) + mlp(block, mlp_input);
  }
  return final_norm_ ? (*final_norm_)(x) : x;
}

at::Tensor Transformer::logits(const at::Tensor& hidden) const { return at::linear(hidden, head_); }

Transformer::Positions Transformer::make_positions(std::int64_t length) const {
  Positions positions;
  if (spec_.positions == PositionKind::kRope) {
    positions.rope = make_rope_table(spec_.rope, length, token_embedding_.options());
  }
  if (spec_.sliding_window && length > *spec_.sliding_window) {
    positions.mask = sliding_window_mask(length, *spec_.sliding_window, token_embedding_.options());
  }
  return positions;
}

at::Tensor Transformer::embed(const at::Tensor& tokens) const {
  at::Tensor x = at::embedding(token_embedding_, tokens);  // [B, T] -> [B, T, D]
  if (position_embedding_.defined()) {
    const std::int64_t length = tokens.size(1);
    if (length > position_embedding_.size(0)) {
      throw_usage("sequences of {} tokens: the model has learned positions for {} only", length,
                  position_embedding_.size(0));
    }
    x = x + position_embedding_.narrow(0, 0, length);
  }
  return embedding_norm_ ? (*embedding_norm_)(x) : x;
}

at::Tensor Transformer::attention(const Block& block, const at::Tensor& x,
                                  const Positions& positions) const {
  Heads heads;
  if (block.packing == Packing::kSeparate) {
    heads = {split_heads(block.q(x), spec_.head_dim), split_heads(block.k(x), spec_.head_dim),
             split_heads(block.v(x), spec_.head_dim)};
  } else {
    heads = split_fused_heads(block.q(x), block.packing, spec_.query_heads, block.kv_heads,
                              spec_.head_dim);
  }
  if (positions.rope) {
    heads.q = rotate(heads.q, *positions.rope);
    heads.k = rotate(heads.k, *positions.rope);
  }
  const at::Tensor mixed = block.alibi ? block.alibi->attend(heads, positions.mask, alibi_form_)
                                       : attend(heads, positions.mask);
  return block.o(merge_heads(mixed));  // [B, H, T, d] -> [B, T, D]
}

at::Tensor Transformer::mlp(const Block& block, const at::Tensor& x) const {
  if (block.gate.present()) {
    return block.down(activate(block.gate(x)) * block.up(x));
  }
  return block.down(activate(block.up(x)));
}

at::Tensor Transformer::activate(const at::Tensor& x) const {
  switch (spec_.activation) {
    case Activation::kSilu: return at::silu(x);
    case Activation::kGeluErf: return at::gelu(x, "none");
    case Activation::kGeluTanh: return at::gelu(x, "tanh");
    case Activation::kRelu: return at::relu(x);
  }
  throw_usage("activation {} is unknown", static_cast<int>(spec_.activation));
}

}  // namespace regroup
