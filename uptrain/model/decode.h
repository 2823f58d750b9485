// Prefill and greedy decoding with a KV cache.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "uptrain/model/kv_cache.h"
#include "uptrain/model/transformer.h"

namespace regroup {

/// Reads tokens, int64 [B, T], at most `chunk` at a time to save memory. Returns the logits of the
/// last token, [B, V]. Throws kUsage if the cache cannot hold them.
at::Tensor read_tokens(const Transformer& model, const at::Tensor& tokens, KvCache& cache,
                       std::int64_t chunk);

/// Decodes `count` tokens of each sequence greedily, starting from `logits`, [B, V] -> int64 [B,
/// count], on the model's device, without synchronising it. `logits` become those of the last
/// token.
at::Tensor decode_greedily(const Transformer& model, at::Tensor& logits, KvCache& cache,
                           std::int64_t count);

}  // namespace regroup
