// Next-token cross entropy without ever holding the logits of a whole batch.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace regroup {

/// Logits computed at a time unless told otherwise (64 MiB of them in fp32).
inline constexpr std::int64_t kLogitsPerChunk = 16 << 20;

/// The mean over N tokens of -log softmax(hidden headᵀ)[target], in fp32 (fp64 for fp64 inputs): a
/// scalar, in nats. hidden: [N, D], head: [V, D], targets: int64 [N] with values in [0, V).
///
/// The gradients of `hidden` and `head` are computed in the same pass, chunk by chunk, where they
/// are wanted; memory is one chunk of logits and one gradient of the head.
at::Tensor next_token_loss(const at::Tensor& hidden, const at::Tensor& head,
                           const at::Tensor& targets,
                           std::int64_t logits_per_chunk = kLogitsPerChunk);

}  // namespace regroup
