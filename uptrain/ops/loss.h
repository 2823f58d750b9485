// Losses on logits without ever holding the logits of a whole batch: next-token cross entropy, and
// distillation from a teacher.
//
// Shapes: N tokens, D features of a model and E of its teacher, V vocabulary.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace regroup {

/// Logits computed at a time unless told otherwise (64 MiB of them in fp32).
inline constexpr std::int64_t kLogitsPerChunk = 16 << 20;

/// What logits are computed from, as hidden headᵀ.
struct LmHeadInputs {
  at::Tensor hidden;  ///< [N, D]
  at::Tensor head;    ///< [V, D]
};

/// The mean over N tokens of -log softmax(hidden headᵀ)[target], in fp32 (fp64 for fp64 inputs): a
/// scalar, in nats. targets: int64 [N] with values in [0, V).
///
/// The gradients of `hidden` and `head` are computed in the same pass, chunk by chunk, where they
/// are wanted; memory is one chunk of logits and one gradient of the head.
at::Tensor next_token_loss(const at::Tensor& hidden, const at::Tensor& head,
                           const at::Tensor& targets,
                           std::int64_t logits_per_chunk = kLogitsPerChunk);

struct DistillationSettings {
  double weight = 0.5;       ///< of the teacher's word against that of the text, 0 to 1
  double temperature = 1.0;  ///< τ
};

/// (1-w)·next_token_loss + w·τ²·KL, where KL is the mean over N tokens of the divergence
/// Σ t·log(t/s) of the student's s = softmax(logits/τ) from the teacher's t, likewise; Hinton et
/// al. 2015, https://arxiv.org/abs/1503.02531, section 2. The teacher has no gradient. Memory is a
/// few chunks of logits and one gradient of the head. teacher: hidden [N, E], head [V, E].
at::Tensor distillation_loss(const LmHeadInputs& student, const at::Tensor& targets,
                             const LmHeadInputs& teacher, const DistillationSettings& settings,
                             std::int64_t logits_per_chunk = kLogitsPerChunk);

/// What is known of a teacher's distributions: their k likeliest tokens, and the rest as a whole.
struct TopKLogits {
  at::Tensor ids;                ///< int64 [N, k], those of a token all different
  at::Tensor log_probabilities;  ///< [N, k+1]; the last one of all other tokens together
};

/// The same of distributions that tell no more than these k+1 events: KL is Σ t·log(t/s) over the k
/// tokens and the one event of all others, whose t and s are 1 minus the rest. By the log sum
/// inequality that is never more than the KL over the vocabulary (Cover & Thomas, "Elements of
/// Information Theory", theorem 2.7.1), and for k = V it is the same. The teacher's probabilities,
/// which are at settings.temperature already, are made to add up to 1 once more.
at::Tensor distillation_loss(const LmHeadInputs& student, const at::Tensor& targets,
                             const TopKLogits& teacher, const DistillationSettings& settings,
                             std::int64_t logits_per_chunk = kLogitsPerChunk);

}  // namespace regroup
