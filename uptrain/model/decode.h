// Reading tokens into a cache, and going on from there.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "uptrain/model/kv_cache.h"
#include "uptrain/model/transformer.h"

namespace regroup {

/// Reads tokens, int64 [B, T], at most `chunk` of them at a time: less memory than all at once.
/// Gives the logits of the last ones, [B, V]. Throws kUsage where the cache cannot take them.
at::Tensor read_tokens(const Transformer& model, const at::Tensor& tokens, KvCache& cache,
                       std::int64_t chunk);

/// Reads `count` tokens of each sequence, every one the likeliest after those before, beginning
/// with that after `logits`, [B, V] -> int64 [B, count], on the model's device, which is not waited
/// for. `logits` become those of the last token.
at::Tensor decode_greedily(const Transformer& model, at::Tensor& logits, KvCache& cache,
                           std::int64_t count);

}  // namespace regroup
