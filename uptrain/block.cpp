#include "uptrain/block.h"

#include <cmath>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/stack.h>

namespace regroup {
namespace {

std::optional<Norm> make_qk_norm(const std::vector<NormTensors>& names, const ModelSpec& spec,
                                 const Parameters& parameters) {
  if (names.empty()) {
    return std::nullopt;
  }
  Norm norm = make_norm(names.front(), spec, parameters);
  norm.weight_offset = 0.0;
  if (spec.qk_norm == QkNorm::kEachHead) {
    std::vector<at::Tensor> weights;
    for (const NormTensors& head : names) {
      weights.push_back(parameters.at(head.weight));
    }
    norm.weight = at::stack(weights).unsqueeze(1);  // [heads, 1, d]
  }
  return norm;
}

AttentionLayer make_attention(const AttentionLayout& names, const ModelSpec& spec,
                              std::int64_t kv_heads, const Parameters& parameters) {
  AttentionLayer attention;
  attention.packing = names.packing;
  attention.q = make_linear(names.q, parameters);
  if (names.packing == Packing::kSeparate) {
    attention.k = make_linear(names.k, parameters);
    attention.v = make_linear(names.v, parameters);
  }
  attention.o = make_linear(names.o, parameters);
  attention.q_norm = make_qk_norm(names.q_norms, spec, parameters);
  attention.k_norm = make_qk_norm(names.k_norms, spec, parameters);
  attention.kv_heads = kv_heads;
  return attention;
}

Alibi make_alibi(const ModelSpec& spec, std::size_t layer, const at::TensorOptions& options) {
  // Falcon scales the bias together with q·k.
  const double scale =
      spec.alibi.scaled ? 1.0 / std::sqrt(static_cast<double>(spec.head_dim)) : 1.0;
  std::vector<double> slopes = alibi_slopes_per_layer(spec)[layer];
  for (double& slope : slopes) {
    slope *= scale;
  }
  return {slopes, spec.head_dim, options, spec.attention_scale};
}

// Queries of x, keys and values of `source`, which is x itself but in cross-attention.
Heads project_heads(const AttentionLayer& layer, const ModelSpec& spec, const at::Tensor& x,
                    const at::Tensor& source) {
  const auto project = [&](const Linear& linear, const at::Tensor& input) {
    const at::Tensor features = linear(input);
    return spec.clip_qkv ? features.clamp(-*spec.clip_qkv, *spec.clip_qkv) : features;
  };
  if (layer.packing != Packing::kSeparate) {
    return split_fused_heads(project(layer.q, x), layer.packing, spec.query_heads, layer.kv_heads,
                             spec.head_dim);
  }
  const bool whole = spec.qk_norm == QkNorm::kProjection;
  const auto normalised = [&](const Linear& linear, const std::optional<Norm>& norm,
                              const at::Tensor& input) {
    const at::Tensor features = project(linear, input);
    const at::Tensor heads =
        split_heads(norm && whole ? (*norm)(features) : features, spec.head_dim);
    return norm && !whole ? (*norm)(heads) : heads;
  };
  return {normalised(layer.q, layer.q_norm, x), normalised(layer.k, layer.k_norm, source),
          split_heads(project(layer.v, source), spec.head_dim)};
}

void show_input(const Pass& pass, AttentionRole role, const at::Tensor& x) {
  if (pass.on_attention_input) {
    pass.on_attention_input(role, x);
  }
}

at::Tensor self_attention(const AttentionLayer& layer, const ModelSpec& spec, const at::Tensor& x,
                          const Pass& pass) {
  show_input(pass, AttentionRole::kSelf, x);
  Heads heads = project_heads(layer, spec, x, x);
  if (pass.rope) {
    heads.q = rotate(heads.q, *pass.rope);
    heads.k = rotate(heads.k, *pass.rope);
  }
  const at::Tensor mixed = layer.alibi
                               ? layer.alibi->attend(heads, pass.mask, pass.alibi_form)
                               : attend(heads, pass.mask, spec.attention_scale, pass.causal);
  return layer.o(merge_heads(mixed));  // [B, H, T, d] -> [B, T, D]
}

at::Tensor cross_attention(const AttentionLayer& layer, const ModelSpec& spec, const at::Tensor& x,
                           const Pass& pass) {
  show_input(pass, AttentionRole::kCross, x);
  const Heads heads = project_heads(layer, spec, x, pass.encoded);
  return layer.o(merge_heads(attend(heads, {}, spec.attention_scale, /*causal=*/false)));
}

at::Tensor mlp(const Block& block, const ModelSpec& spec, const at::Tensor& x) {
  if (block.gate.present()) {
    return block.down(activate(spec.activation, block.gate(x)) * block.up(x));
  }
  return block.down(activate(spec.activation, block.up(x)));
}

}  // namespace

Block make_block(const ModelSpec& spec, AttentionRole role, std::size_t layer,
                 const Parameters& parameters) {
  const LayerTensors& names = spec.stack(role)[layer];
  Block block;
  block.attention_norm = make_norm(names.attention_norm, spec, parameters);
  block.attention =
      make_attention(names.attention, spec, spec.kv_heads_of(role)[layer], parameters);
  if (spec.positions == PositionKind::kAlibi && role == AttentionRole::kSelf) {
    block.attention.alibi = make_alibi(spec, layer, block.attention.q.weight.options());
  }
  block.relative_bias = tensor_or_none(names.relative_bias, parameters);
  if (names.cross_attention.present()) {
    block.cross_norm = make_norm(names.cross_norm, spec, parameters);
    block.cross =
        make_attention(names.cross_attention, spec, spec.cross_kv_heads[layer], parameters);
  }
  if (names.mlp_norm.present() || spec.norm_without_parameters) {
    block.mlp_norm = make_norm(names.mlp_norm, spec, parameters);
  }
  block.gate = make_linear(names.gate, parameters);
  block.up = make_linear(names.up, parameters);
  block.down = make_linear(names.down, parameters);
  return block;
}

at::Tensor run_block(const Block& block, const ModelSpec& spec, const at::Tensor& x,
                     const Pass& pass) {
  const auto mlp_norm = [&](const at::Tensor& input) {
    return block.mlp_norm ? (*block.mlp_norm)(input) : input;
  };
  const auto attention = [&](const at::Tensor& input) {
    return self_attention(block.attention, spec, input, pass);
  };
  if (spec.norm_placement == NormPlacement::kAfterSublayer) {
    const at::Tensor mixed = x + block.attention_norm(attention(x));
    return mixed + mlp_norm(mlp(block, spec, mixed));
  }
  if (spec.norm_placement == NormPlacement::kAfterResidual) {
    const at::Tensor mixed = block.attention_norm(x + attention(x));
    return mlp_norm(mixed + mlp(block, spec, mixed));
  }
  const at::Tensor attention_input = block.attention_norm(x);
  const at::Tensor attended = attention(attention_input);
  if (spec.parallel_residual) {
    return x + attended + mlp(block, spec, block.mlp_norm ? mlp_norm(x) : attention_input);
  }
  at::Tensor mixed = (spec.residual_after_norm ? attention_input : x) + attended;
  if (block.cross.present()) {
    mixed = mixed + cross_attention(block.cross, spec, block.cross_norm(mixed), pass);
  }
  const at::Tensor mlp_input = mlp_norm(mixed);
  return (spec.residual_after_norm ? mlp_input : mixed) + mlp(block, spec, mlp_input);
}

}  // namespace regroup
