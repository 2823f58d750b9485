// What a model is asked about a window of text, which depends on what it was trained for.
//
// Shapes: B windows of C tokens, N predictions, D hidden size, V vocabulary.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include <ATen/core/Tensor.h>

#include "formats/model/model.h"
#include "uptrain/data/document_windows.h"
#include "uptrain/data/span_corruption.h"
#include "uptrain/data/special_tokens.h"
#include "uptrain/model/transformer.h"

namespace regroup {

enum class Objective {
  kNextToken,       ///< decoders: each token after those before it
  kMaskedTokens,    ///< encoders: 15 % of the tokens, from all others
  kContinuation,    ///< encoder-decoders: the second half of the window, the encoder reading the
                    ///< first
  kSpanCorruption,  ///< encoder-decoders: hidden spans of the window, see span_corruption.h
};

/// "next_token", "masked_tokens", "continuation" or "span_corruption".
std::string_view name_of(Objective objective);

/// Reads such a name, with - or _ between its words; throws kUsage for anything else.
Objective parse_objective(std::string_view text);

/// What evaluation asks of a model unless told otherwise.
Objective objective_of(const ModelSpec& spec);

/// What a model is trained on unless told otherwise: the same, or with an encoder beside a decoder
/// span corruption.
Objective training_objective_of(const ModelSpec& spec);

/// Tokens a window of context C must hold: C, or with the one that follows it C + 1.
std::int64_t window_width(Objective objective, std::int64_t context);

/// How tokens are hidden: of those chosen 80 % become `token`, 10 % a random one and 10 % stay
/// (Devlin et al. 2018, https://arxiv.org/abs/1810.04805, section 3.1). A pure function of the seed
/// and the window's number.
struct Masking {
  std::int64_t token = 0;
  std::uint64_t seed = 0;
};

/// What a user may say about the objective; the rest is told by the model.
struct TaskSettings {
  std::optional<std::int64_t> mask_token = std::nullopt;  ///< what stands for a masked token
  std::uint64_t seed = 0;                                 ///< of the choice of hidden tokens
  std::optional<Objective> objective = std::nullopt;
  std::optional<Sentinels> sentinels = std::nullopt;
  std::optional<std::int64_t> end_token = std::nullopt;
};

/// An objective with all that is needed to ask for it.
struct Task {
  Objective objective = Objective::kNextToken;
  Masking masking = {};
  SpanCorruption spans = {};
};

/// The task for windows of `context` tokens. Throws kUsage where the model cannot be asked that, or
/// not of so few or many tokens, and where a special token is needed and not known.
Task make_task(const TaskSettings& settings, const ModelSpec& spec, Objective otherwise,
               std::int64_t context);

/// Throws kUsage where documents are to be kept apart and the task asks for more than the next
/// token: only then is what fills up a window seen by nothing.
void check_documents(const DocumentSettings& documents, const Task& task);

/// `settings`, with what they leave open taken from the model's files.
TaskSettings with_special_tokens(TaskSettings settings, const Model& model);

/// Tokens predicted in a window of context C: C; 15 % of it, at least one; the larger half; or the
/// hidden spans with their sentinels and the end token.
std::int64_t predictions_in(const Task& task, std::int64_t context);

/// A batch of windows with tokens hidden. `positions` are indices into the flattened batch.
struct MaskedTokens {
  at::Tensor ids;        ///< int64 [B, C]
  at::Tensor positions;  ///< int64 [N], those to predict
  at::Tensor targets;    ///< int64 [N]
};

/// ids: int64 [B, C] in host memory, windows number `first` and following.
MaskedTokens mask_tokens(const at::Tensor& ids, std::int64_t first, const Masking& masking,
                         std::int64_t vocab_size);

/// What the encoder and the decoder read and what the latter shall predict: [B, ⌊C/2⌋] and twice
/// [B, ⌈C/2⌉], where the decoder begins with its start token.
struct Halves {
  at::Tensor source, target, answers;
};
Halves split_halves(const at::Tensor& ids, std::int64_t start_token);

/// Hidden states [1, N, D] to predict from, and the right tokens, int64 [N], on the model's device.
struct Predictions {
  at::Tensor hidden;
  at::Tensor targets;
};

/// ids: int64 [B, window_width] in host memory, windows number `first` and following. Where the
/// next token is asked for, kNoToken at the end of a window is not.
Predictions predict(const Transformer& model, const at::Tensor& ids, std::int64_t first,
                    const Task& task);

/// Logits of whole windows, nothing hidden: ids [B, C] -> [B, C, V], for encoder-decoders those of
/// the second half, [B, ⌈C/2⌉, V].
at::Tensor window_logits(const Transformer& model, const at::Tensor& ids);

}  // namespace regroup
