// Training and evaluation objectives: what a model predicts for a window of text.
//
// Shapes: B windows of C tokens, N predictions, D hidden size, V vocabulary.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "formats/model/model.h"
#include "uptrain/model/transformer.h"
#include "uptrain/train/data_loader.h"
#include "uptrain/train/text_infilling.h"

namespace regroup {

enum class Objective {
  kNextToken,       ///< decoders: each token after those before it
  kMaskedTokens,    ///< encoders: 15 % of the tokens, from all others
  kContinuation,    ///< encoder-decoders: the second half of the window, the encoder reading the
                    ///< first
  kSpanCorruption,  ///< encoder-decoders: hidden spans of the window, see text_infilling.h
  kTextInfilling,   ///< encoder-decoders: the window, hidden spans included, see text_infilling.h
};

/// "next-token", "masked-tokens", "continuation", "span-corruption" or "text-infilling".
std::string_view name_of(Objective objective);

/// Reads such a name, with - or _ between its words; throws kUsage for anything else.
Objective parse_objective(std::string_view text);

/// Whether spans of tokens are hidden from an encoder.
bool hides_spans(Objective objective);

/// The default objective of evaluation.
Objective objective_of(const ModelSpec& spec);

/// The default training objective: the same, or what an encoder-decoder was pretrained on. Throws
/// kUsage if that is not plain text.
Objective training_objective_of(const ModelSpec& spec);

/// Tokens in a window of context C: C, or C + 1 if the next token is predicted.
std::int64_t window_width(Objective objective, std::int64_t context);

/// What a user may set about the objective; the rest follows from the model.
struct TaskSettings {
  std::optional<std::int64_t> mask_token = std::nullopt;  ///< replaces masked tokens
  std::uint64_t seed = 0;                                 ///< of the choice of hidden tokens
  std::optional<Objective> objective = std::nullopt;
  std::optional<Sentinels> sentinels = std::nullopt;
  std::optional<std::int64_t> end_token = std::nullopt;
};

/// An objective with its special tokens and seed.
struct Task {
  Objective objective = Objective::kNextToken;
  Hiding hiding = {};
};

/// The task for windows of `context` tokens. Throws kUsage if the model does not support the
/// objective or the context, or if a required special token is not known.
Task make_task(const TaskSettings& settings, const ModelSpec& spec, Objective otherwise,
               std::int64_t context);

/// The task of training: the objective that is set, else training_objective_of().
Task make_training_task(const TaskSettings& settings, const ModelSpec& spec, std::int64_t context);

/// Throws kUsage if documents are to be kept apart and the task is not next-token prediction: only
/// causal models never see the padding of a window.
void check_documents(const DocumentSettings& documents, const Task& task);

/// `settings`, completed from the model's files.
TaskSettings with_special_tokens(TaskSettings settings, const Model& model);

/// The task that a model is evaluated on, completed from its files; none if it cannot predict: it
/// has no output head, or it is BERT-like and its mask token is not known.
std::optional<Task> evaluation_task(const Model& model, std::int64_t context);

/// Tokens predicted in a window of context C: C; 15 % of it, at least one; the larger half; the
/// hidden spans with their sentinels and the end token; or C and the end token.
std::int64_t predictions_in(const Task& task, std::int64_t context);

/// Token counts of a task that hides_spans().
SpanCounts counts_of(const Task& task, std::int64_t context);

/// What a model reads in a batch of windows, and what it is to predict.
struct TaskBatch {
  at::Tensor tokens;          ///< int64 [B, C], of an encoder-decoder those of the encoder
  at::Tensor decoder_tokens;  ///< int64 [B, T], of an encoder-decoder only
  at::Tensor positions;       ///< int64 [N], indices of predictions among B·C; undefined: all
  at::Tensor targets;         ///< int64 [N]
};

/// BERT's masking: of the chosen tokens 80 % become `hiding.token`, 10 % a random token and 10 %
/// stay (Devlin et al. 2018, https://arxiv.org/abs/1810.04805, section 3.1). ids: int64 [B, C] in
/// host memory, windows number `first` and following.
TaskBatch mask_tokens(const at::Tensor& ids, std::int64_t first, const Hiding& hiding,
                      std::int64_t vocab_size);

/// The first ⌊C/2⌋ tokens of each window for the encoder, the others for the decoder.
TextPair split_halves(const at::Tensor& ids, std::int64_t start_token);

/// The batch of windows number `first` and following, in host memory. ids: int64 [B, window_width]
/// in host memory. In next-token prediction, kNoToken at the end of a window is not a target.
TaskBatch make_task_batch(const at::Tensor& ids, std::int64_t first, const Task& task,
                          const ModelSpec& spec);

/// What a model that computes `part` of next-token windows reads and predicts of them. ids: int64
/// [B, C + 1] -> [B, C/parts + 1]; ids itself if `part` is null.
at::Tensor part_of_windows(const at::Tensor& ids, const SequencePart* part);

/// Copies the batch to `device`, and the tensors of `others` in the same transfer, see upload().
/// Replaces `others` by their copies.
TaskBatch uploaded(const TaskBatch& batch, at::Device device,
                   const std::vector<at::Tensor*>& others = {});

/// Hidden states [1, N, D] and their target tokens, int64 [N], on the model's device.
struct Predictions {
  at::Tensor hidden;
  at::Tensor targets;
};

/// The predictions of a batch on the model's device.
Predictions predict(const Transformer& model, const TaskBatch& batch);

/// The same for ids as in make_task_batch().
Predictions predict(const Transformer& model, const at::Tensor& ids, std::int64_t first,
                    const Task& task);

/// Logits of whole windows, without masking: ids [B, C] -> [B, C, V], for encoder-decoders those of
/// the second half, [B, ⌈C/2⌉, V].
at::Tensor window_logits(const Transformer& model, const at::Tensor& ids);

}  // namespace regroup
