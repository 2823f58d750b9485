// Losses that never hold the logits of a whole batch: next-token cross entropy and distillation.
//
// Shapes: N tokens, D features of a model and E of its teacher, V vocabulary.
#pragma once

#include <cstdint>
#include <optional>

#include <ATen/core/Tensor.h>

namespace regroup {

/// Tokens whose logits are computed at a time, for a vocabulary of V. On a CPU as many as 64 MiB of
/// fp32 logits hold. Elsewhere at least 2048: each chunk reads all weights of the head, which takes
/// longer than multiplying them by fewer rows, and adds to the head's gradient in fp32; where the
/// logits are replaced `in_place` by their gradient, up to 8192, whose logits take at most 1 GiB in
/// bf16.
std::int64_t default_loss_rows(std::int64_t vocab_size, bool on_cpu, bool in_place = false);

/// The inputs of the logits, hidden headᵀ.
struct LmHeadInputs {
  at::Tensor hidden;                             ///< [N, D]
  at::Tensor head;                               ///< [V, D]
  std::optional<double> softcap = std::nullopt;  ///< of the logits, see softcapped()
};

/// The logits of tokens begin … begin + count - 1: [count, V], in fp32 (fp64 for fp64 inputs), to
/// which they are widened before they are capped.
at::Tensor logits_of(const LmHeadInputs& inputs, std::int64_t begin, std::int64_t count);

/// The mean over N tokens of -log softmax(logits)[target], in fp32 (fp64 for fp64 inputs): a
/// scalar, in nats. targets: int64 [N] with values in [0, V).
///
/// The gradients of `hidden` and `head`, if required, are computed in the same pass, chunk by
/// chunk of `rows` tokens, default_loss_rows() unless given. Memory: one chunk of logits and one
/// gradient of the head.
at::Tensor next_token_loss(const LmHeadInputs& inputs, const at::Tensor& targets,
                           std::optional<std::int64_t> rows = std::nullopt);

struct DistillationSettings {
  double weight = 0.5;       ///< w: of the teacher against the text, 0 to 1
  double temperature = 1.0;  ///< τ
};

/// (1-w)·next_token_loss + w·τ²·KL, where KL is the mean over N tokens of the divergence Σ
/// t·log(t/s) between the student's s = softmax(logits/τ) and the teacher's t, computed likewise;
/// Hinton et al. 2015, https://arxiv.org/abs/1503.02531, section 2. The teacher has no gradient.
/// Memory: a few chunks of logits and one gradient of the head. teacher: hidden [N, E], head [V,
/// E].
at::Tensor distillation_loss(const LmHeadInputs& student, const at::Tensor& targets,
                             const LmHeadInputs& teacher, const DistillationSettings& settings,
                             std::optional<std::int64_t> rows = std::nullopt);

/// A teacher's distributions reduced to their k most likely tokens and the sum of the rest.
struct TopKLogits {
  at::Tensor ids;                ///< int64 [N, k], all different in a row
  at::Tensor log_probabilities;  ///< [N, k+1]; the last is that of all other tokens
};

/// The same over k+1 events: KL is Σ t·log(t/s) over the k tokens and the event of any other token,
/// whose t and s are 1 minus the sum of the k. By the log sum inequality this is never more than
/// the KL over the vocabulary (Cover & Thomas, "Elements of Information Theory", theorem 2.7.1);
/// for k = V both are equal. The teacher's probabilities are already at settings.temperature; they
/// are renormalised to sum to 1.
at::Tensor distillation_loss(const LmHeadInputs& student, const at::Tensor& targets,
                             const TopKLogits& teacher, const DistillationSettings& settings,
                             std::optional<std::int64_t> rows = std::nullopt);

}  // namespace regroup
