#include "uptrain/attention_layer.h"

#include <vector>

#include <ATen/TensorOperators.h>

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
    for (const NormTensors& head : names) {
      norm.heads.push_back(parameters.at(head.weight));
    }
  }
  return norm;
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

// Shows the observer what an attention reads and adds.
at::Tensor shown(const Pass& pass, AttentionRole role, const at::Tensor& input,
                 const at::Tensor& output) {
  if (pass.on_attention) {
    pass.on_attention(role, input, output);
  }
  return output;
}

}  // namespace

AttentionLayer make_attention_layer(const AttentionLayout& names, const ModelSpec& spec,
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

Heads self_attention_heads(const AttentionLayer& layer, const ModelSpec& spec, const at::Tensor& x,
                           const Pass& pass) {
  Heads heads = project_heads(layer, spec, x, x);
  if (pass.rope) {
    heads.q = rotate(heads.q, *pass.rope);
    heads.k = rotate(heads.k, *pass.rope);
  }
  return heads;
}

at::Tensor self_attention(const AttentionLayer& layer, const ModelSpec& spec, const at::Tensor& x,
                          const Pass& pass) {
  const Heads heads = self_attention_heads(layer, spec, x, pass);
  const at::Tensor mixed = layer.alibi
                               ? layer.alibi->attend(heads, pass.mask, pass.alibi_form)
                               : attend(heads, pass.mask, spec.attention_scale, pass.causal);
  return shown(pass, AttentionRole::kSelf, x, layer.o(merge_heads(mixed)));
}

at::Tensor cross_attention(const AttentionLayer& layer, const ModelSpec& spec, const at::Tensor& x,
                           const Pass& pass) {
  const Heads heads = project_heads(layer, spec, x, pass.encoded);
  const at::Tensor mixed = attend(heads, {}, spec.attention_scale, /*causal=*/false);
  return shown(pass, AttentionRole::kCross, x, layer.o(merge_heads(mixed)));
}

}  // namespace regroup
