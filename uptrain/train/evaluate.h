// Losses of a model on a text, and the logits of two models.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>

#include "converter/convert/conversion_plan.h"
#include "formats/model/model.h"
#include "formats/vocabulary/token_file.h"
#include "uptrain/model/transformer.h"
#include "uptrain/train/objective.h"

namespace regroup {

// Evaluates a model on a text: loss, perplexity, or all its logits.

struct EvaluationSettings {
  std::int64_t context = 1024;  ///< tokens the model sees at most
  std::int64_t batch = 8;       ///< windows at a time
  /// Stop after about this many predicted tokens. Fewer than a window has make it shorter.
  std::optional<std::int64_t> max_tokens;
  TaskSettings task = {};
  std::int64_t share = 0;   ///< which of `shares` equal parts of the batches to evaluate
  std::int64_t shares = 1;  ///< with fewer batches than shares, some are empty: loss 0
  DocumentSettings documents = {};
  /// If set, all shares compute equally many batches, those with fewer one of them again: passes
  /// over weights or sequences that ranks share out need all of them. It is told before each batch
  /// whether this share is to stop, and says whether any is, so that all stop together.
  std::function<bool(bool)> any_stops = {};
};

struct Evaluation {
  double loss = 0.0;        ///< nats per token
  double perplexity = 0.0;  ///< e^loss
  std::int64_t tokens = 0;  ///< predicted tokens
};

/// The tokens of a window that evaluate() reads: `context`, or fewer if max_tokens asks for fewer
/// predictions. Throws kUsage as evaluation_windows() does.
std::int64_t evaluation_context(const EvaluationSettings& settings, const ModelSpec& spec);

/// The windows that evaluate() reads: consecutive windows of that many tokens each, window w from
/// token w·context on, plus one more token if the task is next-token prediction; or those of
/// DocumentWindows. Throws kBadInput for a file shorter than one window, kUsage if the mask token
/// is not known or documents cannot be kept apart.
std::int64_t evaluation_windows(const TokenFile& file, const EvaluationSettings& settings,
                                const ModelSpec& spec);

/// The same for write_logits(), whose windows need no next token and mask none.
std::int64_t logits_windows(const TokenFile& file, const EvaluationSettings& settings,
                            const ModelSpec& spec);

/// The mean loss of the model's objective over the file's windows, or over the model's part of each
/// (see Transformer::set_sequence_part()); a remainder shorter than a window is left out.
/// `progress` counts windows. Throws kBadInput for a token outside the vocabulary, kInterrupted
/// soon after `stop` turns true, and what evaluation_windows() throws.
Evaluation evaluate(const Transformer& model, const TokenFile& file,
                    const EvaluationSettings& settings, const CountProgress& progress,
                    const std::atomic<bool>& stop);

/// Writes `path`, a safetensors file with F32 `logits` of consecutive windows of exactly `context`
/// tokens: [windows, context, V], for encoder-decoders [windows, ⌈context/2⌉, V], see
/// window_logits(). Creates missing parents. Throws kUsage if `path` exists, kBadInput for NaN
/// or infinities, kEnvironment without enough space; it appears when it is complete.
void write_logits(const Transformer& model, const TokenFile& file,
                  const EvaluationSettings& settings, const std::filesystem::path& path,
                  const CountProgress& progress, const std::atomic<bool>& stop);

// Tests on random tokens whether two models compute the same, a few layers at a time.

struct LogitComparison {
  double largest_difference = 0.0;
  double largest_logit = 0.0;
};

/// A comparison before the weights are rounded to the dtype of the result.
struct FormComparison {
  LogitComparison logits = {};
  /// ‖stored − planned‖ / ‖planned‖, the largest of all tensors of the result.
  double largest_rounding = 0.0;
};

/// Compares `result` with what `reference`, a plan for `source` that keeps its architecture, would
/// write. For decoder-only models. Computes every layer in fp32, in groups of layers that take
/// little memory; each group is placed between the embedding and the output projection. Throws
/// kInterrupted soon after `stop` turns true.
LogitComparison compare_logits(const ConversionPlan& reference, const Model& source,
                               const Model& result, const std::atomic<bool>& stop);

/// Compares what `form`, a plan for `source` in fp32 with the form of `result`, and `reference`, as
/// above and in fp32, would write, and the tensors of `result` with those that `form` would write.
/// Rounding changes logits by more than its own size where it changes the choice of an expert.
FormComparison compare_forms(const ConversionPlan& reference, const ConversionPlan& form,
                             const Model& source, const Model& result,
                             const std::atomic<bool>& stop);

}  // namespace regroup
