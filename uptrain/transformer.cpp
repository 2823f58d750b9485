#include "uptrain/transformer.h"

#include <cmath>
#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/rms_norm.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/stack.h>

#include "formats/error.h"
#include "formats/printable.h"
#include "uptrain/loss.h"
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
  const std::vector<std::int64_t> width = {x.size(-1)};
  // Weights of single heads, [H, 1, d], are wider than what is normalised.
  const bool apart = weight.defined() && weight.dim() > 1;
  const at::Tensor scale = weight_offset != 0.0 ? weight + weight_offset : weight;
  const auto fused_scale = apart ? std::nullopt : optional(scale);
  const at::Tensor normal = kind == NormKind::kRmsNorm
                                ? at::rms_norm(x, width, fused_scale, epsilon)
                                : at::layer_norm(x, width, fused_scale, optional(bias), epsilon);
  return apart ? normal * scale : normal;
}

Transformer::Transformer(ModelSpec spec, const Parameters& parameters)
    : spec_(std::move(spec)),
      token_embedding_(parameters.at(spec_.token_embedding)),
      position_embedding_(tensor_or_none(spec_.position_embedding, parameters)),
      head_(spec_.lm_head.empty() ? token_embedding_ : parameters.at(spec_.lm_head)),
      head_bias_(tensor_or_none(spec_.lm_head_bias, parameters)),
      project_in_(make_linear(spec_.project_in, parameters)),
      project_out_(make_linear(spec_.project_out, parameters)),
      alibi_form_(Alibi::best_form(token_embedding_.device())) {
  check_computable(spec_);
  if (spec_.embedding_norm.present()) {
    embedding_norm_ = make_norm(spec_.embedding_norm, parameters);
  }
  if (spec_.final_norm.present() || spec_.norm_without_parameters) {
    final_norm_ = make_norm(spec_.final_norm, parameters);
  }
  for (std::int64_t layer = 0; layer < spec_.layer_count(); ++layer) {
    blocks_.push_back(make_block(spec_.layers[layer], layer, parameters));
  }
  if (spec_.positions == PositionKind::kAlibi) {
    auto slopes = alibi_slopes_per_layer(spec_);
    for (std::size_t layer = 0; layer < blocks_.size(); ++layer) {
      for (double& slope : slopes[layer]) {
        slope *= slope_scale();
      }
      blocks_[layer].alibi.emplace(slopes[layer], spec_.head_dim, token_embedding_.options(),
                                   spec_.attention_scale);
    }
  }
}

Norm Transformer::make_norm(const NormTensors& names, const Parameters& parameters) const {
  return {tensor_or_none(names.weight, parameters), tensor_or_none(names.bias, parameters),
          spec_.norm, spec_.norm_epsilon, spec_.norm_weight_offset};
}

std::optional<Norm> Transformer::make_qk_norm(const std::vector<NormTensors>& names,
                                              const Parameters& parameters) const {
  if (names.empty()) {
    return std::nullopt;
  }
  Norm norm = make_norm(names.front(), parameters);
  norm.weight_offset = 0.0;
  if (spec_.qk_norm == QkNorm::kEachHead) {
    std::vector<at::Tensor> weights;
    for (const NormTensors& head : names) {
      weights.push_back(parameters.at(head.weight));
    }
    norm.weight = at::stack(weights).unsqueeze(1);  // [heads, 1, d]
  }
  return norm;
}

// Falcon scales the bias together with q·k.
double Transformer::slope_scale() const {
  return spec_.alibi.scaled ? 1.0 / std::sqrt(static_cast<double>(spec_.head_dim)) : 1.0;
}

Transformer::Block Transformer::make_block(const LayerTensors& names, std::int64_t layer,
                                           const Parameters& parameters) const {
  Block block;
  block.attention_norm = make_norm(names.attention_norm, parameters);
  if (names.mlp_norm.present() || spec_.norm_without_parameters) {
    block.mlp_norm = make_norm(names.mlp_norm, parameters);
  }
  block.q_norm = make_qk_norm(names.attention.q_norms, parameters);
  block.k_norm = make_qk_norm(names.attention.k_norms, parameters);
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
    x = run_block(block, x, positions);
  }
  x = final_norm_ ? (*final_norm_)(x) : x;
  return project_out_.present() ? project_out_(x) : x;
}

at::Tensor Transformer::run_block(const Block& block, const at::Tensor& x,
                                  const Positions& positions) const {
  const auto mlp_norm = [&](const at::Tensor& input) {
    return block.mlp_norm ? (*block.mlp_norm)(input) : input;
  };
  if (spec_.norm_placement == NormPlacement::kAfterSublayer) {
    const at::Tensor mixed = x + block.attention_norm(attention(block, x, positions));
    return mixed + mlp_norm(mlp(block, mixed));
  }
  if (spec_.norm_placement == NormPlacement::kAfterResidual) {
    const at::Tensor mixed = block.attention_norm(x + attention(block, x, positions));
    return mlp_norm(mixed + mlp(block, mixed));
  }
  const at::Tensor attention_input = block.attention_norm(x);
  const at::Tensor attended = attention(block, attention_input, positions);
  if (spec_.parallel_residual) {
    return x + attended + mlp(block, block.mlp_norm ? mlp_norm(x) : attention_input);
  }
  const at::Tensor mixed = (spec_.residual_after_norm ? attention_input : x) + attended;
  const at::Tensor mlp_input = mlp_norm(mixed);
  return (spec_.residual_after_norm ? mlp_input : mixed) + mlp(block, mlp_input);
}

at::Tensor Transformer::logits(const at::Tensor& hidden) const {
  return at::linear(hidden, head_, optional(head_bias_));
}

at::Tensor Transformer::loss(const at::Tensor& hidden, const at::Tensor& targets) const {
  const at::Tensor flat = hidden.flatten(0, 1);  // [N, D]
  if (!head_bias_.defined()) {
    return next_token_loss(flat, head_, targets);
  }
  // A bias is the weight of one more input that is always 1.
  const at::Tensor ones = at::ones({flat.size(0), 1}, flat.options().requires_grad(false));
  return next_token_loss(at::cat({flat, ones}, 1), at::cat({head_, head_bias_.unsqueeze(1)}, 1),
                         targets);
}

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
  if (project_in_.present()) {
    x = project_in_(x);
  }
  if (spec_.embedding_scale != 1.0) {
    x = x * spec_.embedding_scale;
  }
  if (position_embedding_.defined()) {
    const std::int64_t length = tokens.size(1);
    const std::int64_t positions = position_embedding_.size(0) - spec_.position_offset;
    if (length > positions) {
      throw_usage("sequences of {} tokens: the model has learned positions for {} only", length,
                  positions);
    }
    x = x + position_embedding_.narrow(0, spec_.position_offset, length);
  }
  return embedding_norm_ ? (*embedding_norm_)(x) : x;
}

at::Tensor Transformer::attention(const Block& block, const at::Tensor& x,
                                  const Positions& positions) const {
  Heads heads = project_heads(block, x);
  if (positions.rope) {
    heads.q = rotate(heads.q, *positions.rope);
    heads.k = rotate(heads.k, *positions.rope);
  }
  const at::Tensor mixed = block.alibi ? block.alibi->attend(heads, positions.mask, alibi_form_)
                                       : attend(heads, positions.mask, spec_.attention_scale);
  return block.o(merge_heads(mixed));  // [B, H, T, d] -> [B, T, D]
}

Heads Transformer::project_heads(const Block& block, const at::Tensor& x) const {
  const auto project = [&](const Linear& linear) {
    const at::Tensor features = linear(x);
    return spec_.clip_qkv ? features.clamp(-*spec_.clip_qkv, *spec_.clip_qkv) : features;
  };
  if (block.packing != Packing::kSeparate) {
    return split_fused_heads(project(block.q), block.packing, spec_.query_heads, block.kv_heads,
                             spec_.head_dim);
  }
  const bool whole = spec_.qk_norm == QkNorm::kProjection;
  const auto normalised = [&](const Linear& linear, const std::optional<Norm>& norm) {
    const at::Tensor features = project(linear);
    const at::Tensor heads =
        split_heads(norm && whole ? (*norm)(features) : features, spec_.head_dim);
    return norm && !whole ? (*norm)(heads) : heads;
  };
  return {normalised(block.q, block.q_norm), normalised(block.k, block.k_norm),
          split_heads(project(block.v), spec_.head_dim)};
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
    case Activation::kReluSquared: return at::relu(x).square();
  }
  throw_usage("activation {} is unknown", static_cast<int>(spec_.activation));
}

}  // namespace regroup
