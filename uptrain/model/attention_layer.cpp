#include "uptrain/model/attention_layer.h"

#include <algorithm>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>

#include "uptrain/model/kv_cache.h"

namespace regroup {
namespace {

std::optional<Norm> make_qk_norm(const std::vector<NormTensors>& names, const ModelSpec& spec,
                                 const Parameters& parameters) {
  if (names.empty()) {
    return std::nullopt;
  }
  Norm norm = make_norm(names.front(), spec, parameters);
  if (spec.qk_norm == QkNorm::kPerHead) {
    for (const NormTensors& head : names) {
      norm.heads.push_back(parameters.at(head.weight));
    }
  }
  return norm;
}

at::Tensor clipped(const at::Tensor& features, const ModelSpec& spec) {
  return spec.clip_qkv ? features.clamp(-*spec.clip_qkv, *spec.clip_qkv) : features;
}

// Applies the norm of queries or keys, if there is one, to the heads of a fused projection.
at::Tensor normed_heads(const at::Tensor& heads, const std::optional<Norm>& norm,
                        const ModelSpec& spec) {
  if (!norm) {
    return heads;
  }
  return spec.qk_norm == QkNorm::kProjection
             ? split_heads((*norm)(merge_heads(heads)), spec.head_dim)
             : (*norm)(heads);
}

// Queries, keys or values of their projection, with the norm of queries or keys if there is one.
// OLMoE clips what its norm over the whole projection returns.
at::Tensor heads_of(const at::Tensor& features, const std::optional<Norm>& norm,
                    const ModelSpec& spec) {
  const bool whole = spec.qk_norm == QkNorm::kProjection;
  const at::Tensor heads =
      split_heads(clipped(norm && whole ? (*norm)(features) : features, spec), spec.head_dim);
  return norm && !whole ? (*norm)(heads) : heads;
}

// Computes the queries of x, and the keys and values of `source`, which is x except in
// cross-attention.
Heads project_heads(const AttentionLayer& layer, const ModelSpec& spec, const at::Tensor& x,
                    const at::Tensor& source) {
  if (layer.packing != Packing::kSeparate) {
    const Heads heads = split_fused_heads(clipped(layer.q(x), spec), layer.packing,
                                          spec.query_heads, layer.kv_heads, spec.head_dim);
    return {normed_heads(heads.q, layer.q_norm, spec), normed_heads(heads.k, layer.k_norm, spec),
            heads.v};
  }
  std::vector<at::Tensor> features;
  if (x.is_same(source)) {
    features = run_linears({layer.q, layer.k, layer.v}, x);
  } else {
    features = run_linears({layer.k, layer.v}, source);
    features.insert(features.begin(), layer.q(x));
  }
  return {heads_of(features[0], layer.q_norm, spec), heads_of(features[1], layer.k_norm, spec),
          heads_of(features[2], std::nullopt, spec)};
}

at::Tensor attend_in_layer(const AttentionLayer& layer, const ModelSpec& spec, const Heads& heads,
                           const Pass& pass) {
  if (layer.alibi) {
    return layer.alibi->attend(heads, pass.alibi_form, pass.window.get());
  }
  if (spec.attention_softcap) {
    return attend_softcapped(
        heads, {.cap = *spec.attention_softcap,
                .scale = spec.attention_scale,
                .causal = true,
                .window = pass.window ? std::optional(pass.window->width()) : std::nullopt});
  }
  return pass.window ? attend_in_window(heads, *pass.window, spec.attention_scale)
                     : attend(heads, pass.mask, spec.attention_scale, pass.causal);
}

// The attention of several new tokens over their own and earlier keys.
at::Tensor attend_from_chunk(const AttentionLayer& layer, const ModelSpec& spec, const Heads& heads,
                             const Pass& pass) {
  if (spec.attention_softcap) {
    return attend_softcapped(heads, {.cap = *spec.attention_softcap,
                                     .scale = spec.attention_scale,
                                     .causal = false,
                                     .mask = pass.mask});
  }
  if (!layer.alibi) {
    return attend_in_groups(heads, pass.mask, spec.attention_scale);
  }
  const at::Tensor dimensions = Alibi::key_dimensions(pass.step->positions, heads.k.options());
  return attend_in_groups(layer.alibi->extended(heads, dimensions), pass.mask, layer.alibi->scale())
      .narrow(-1, 0, heads.v.size(-1));
}

// These queries with the keys and values of the first `count` slots.
Heads with_slots(const at::Tensor& q, const LayerCache& cache, std::int64_t count) {
  return {q, cache.k.narrow(2, 0, count), cache.v.narrow(2, 0, count)};
}

// Stores the keys and values of the new tokens, then attends over the whole cache, whose keys have
// ALiBi's dimensions.
at::Tensor attend_with_extended_cache(const AttentionLayer& layer, const ModelSpec& spec,
                                      const Heads& heads, const Pass& pass) {
  const CacheStep& step = *pass.step;
  const LayerCache& cache = *pass.cache;
  const Heads wider = layer.alibi->extended(heads, step.key_dimensions);
  store(*pass.cache, step, wider.k, wider.v);
  if (step.first == 0) {
    return attend_in_layer(layer, spec, heads, pass);
  }
  const double scale = layer.alibi->scale();
  const at::Tensor mixed =
      step.count == 1 ? attend_from_one_token({wider.q, cache.k, cache.v}, step.used, {}, scale)
                      : attend_in_groups(with_slots(wider.q, cache, step.used), pass.mask, scale);
  return mixed.narrow(-1, 0, heads.v.size(-1));
}

// Attention over the keys and values of a cache, to which the new ones are added.
at::Tensor attend_with_cache(const AttentionLayer& layer, const ModelSpec& spec, const Heads& heads,
                             const Pass& pass) {
  const CacheStep& step = *pass.step;
  LayerCache& cache = *pass.cache;
  if (step.key_dimensions.defined()) {
    return attend_with_extended_cache(layer, spec, heads, pass);
  }
  if (step.apart) {
    const Heads old = with_slots(heads.q, cache, std::min(step.first, step.slots));
    const Heads seen = {heads.q, at::cat({old.k, heads.k}, 2), at::cat({old.v, heads.v}, 2)};
    store(cache, step, heads.k, heads.v);
    return attend_from_chunk(layer, spec, seen, pass);
  }
  store(cache, step, heads.k, heads.v);
  if (step.first == 0) {
    return attend_in_layer(layer, spec, heads, pass);
  }
  if (step.count > 1) {
    return attend_from_chunk(layer, spec, with_slots(heads.q, cache, step.used), pass);
  }
  const at::Tensor bias = layer.alibi ? layer.alibi->bias(step.positions - step.first) : pass.mask;
  return attend_from_one_token({heads.q, cache.k, cache.v}, step.used, bias,
                               layer.alibi ? layer.alibi->scale() : spec.attention_scale,
                               spec.attention_softcap);
}

// The encoder's output does not change, so its keys and values are computed once.
Heads cross_heads(const AttentionLayer& layer, const ModelSpec& spec, const at::Tensor& x,
                  const Pass& pass) {
  LayerCache* const cache = pass.cache;
  if (cache != nullptr && cache->cross_k.defined()) {
    return {heads_of(layer.q(x), layer.q_norm, spec), cache->cross_k, cache->cross_v};
  }
  const Heads heads = project_heads(layer, spec, x, pass.encoded);
  if (cache != nullptr) {
    cache->cross_k = heads.k.contiguous();
    cache->cross_v = heads.v.contiguous();
  }
  return heads;
}

// Calls the observer with input and output of an attention.
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
  if (pass.rope && !layer.without_rope) {
    heads.q = rotate(heads.q, *pass.rope);
    heads.k = rotate(heads.k, *pass.rope);
  }
  return heads;
}

at::Tensor self_attention(const AttentionLayer& layer, const ModelSpec& spec, const at::Tensor& x,
                          const Pass& pass) {
  Heads heads = self_attention_heads(layer, spec, x, pass);
  if (pass.part != nullptr) {
    const KeysAndValues all = join_parts(*pass.part, {heads.k, heads.v});
    heads = {heads.q, all.k, all.v};
  }
  const at::Tensor mixed = pass.cache == nullptr ? attend_in_layer(layer, spec, heads, pass)
                                                 : attend_with_cache(layer, spec, heads, pass);
  return shown(pass, AttentionRole::kSelf, x, layer.o(merge_heads(mixed)));
}

at::Tensor cross_attention(const AttentionLayer& layer, const ModelSpec& spec, const at::Tensor& x,
                           const Pass& pass) {
  const Heads heads = cross_heads(layer, spec, x, pass);
  const at::Tensor mixed = attend(heads, {}, spec.attention_scale, /*causal=*/false);
  return shown(pass, AttentionRole::kCross, x, layer.o(merge_heads(mixed)));
}

}  // namespace regroup
