#include "uptrain/model/decode.h"

#include <algorithm>
#include <vector>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>

#include "formats/base/error.h"

namespace regroup {
namespace {

at::Tensor read_chunk(const Transformer& model, const at::Tensor& tokens, KvCache& cache) {
  const at::Tensor hidden = model.hidden_states(tokens, cache);
  return model.logits(hidden.select(1, hidden.size(1) - 1));
}

}  // namespace

at::Tensor read_tokens(const Transformer& model, const at::Tensor& tokens, KvCache& cache,
                       std::int64_t chunk) {
  if (chunk < 1 || tokens.size(1) < 1) {
    throw_usage("{} tokens to read in chunks of {}: both must be 1 or more", tokens.size(1), chunk);
  }
  const at::NoGradGuard no_gradients;
  at::Tensor logits;
  for (std::int64_t first = 0; first < tokens.size(1);) {
    const std::int64_t step =
        std::min({chunk, tokens.size(1) - first, std::max<std::int64_t>(1, cache.longest_step())});
    logits = read_chunk(model, tokens.narrow(1, first, step), cache);
    first += step;
  }
  return logits;
}

at::Tensor decode_greedily(const Transformer& model, at::Tensor& logits, KvCache& cache,
                           std::int64_t count) {
  const at::NoGradGuard no_gradients;
  std::vector<at::Tensor> tokens;
  for (std::int64_t i = 0; i < count; ++i) {
    tokens.push_back(logits.argmax(-1, /*keepdim=*/true));
    logits = read_chunk(model, tokens.back(), cache);
  }
  return at::cat(tokens, 1);
}

}  // namespace regroup
