// How well a model predicts a text, against chance and against another model.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include "converter/convert/conversion_plan.h"
#include "formats/model/model.h"
#include "formats/vocabulary/token_file.h"
#include "uptrain/model/language_model.h"
#include "uptrain/train/calibrate.h"
#include "uptrain/train/objective.h"

namespace regroup {

// Whether a causal model predicts a text at all.

/// Losses in nats per token: of the model, and of the best guesses that do not look at the tokens
/// before.
struct TextChance {
  std::int64_t tokens = 0;  ///< that the model predicted
  double loss = 0.0;
  double uniform = 0.0;  ///< ln(vocabulary): all tokens are equally likely
  /// The entropy of the text's own token frequencies, which a model of that text must beat. Of its
  /// bias in a small text the first-order term is corrected (Miller 1955): + (distinct - 1) / 2N.
  double frequencies = 0.0;

  double chance() const { return uniform < frequencies ? uniform : frequencies; }
  bool better_than_chance() const { return loss < chance(); }
};

/// Measures about 2048 tokens in windows of `context` from all over the text; the frequencies are
/// of about a million tokens. None for models that do not predict the next token: encoders,
/// encoder-decoders and models without an output head. `after_layer` may be empty. Throws what
/// TextQualityMeter throws.
std::optional<TextChance> compare_with_chance(const Model& model, const TokenFile& text,
                                              std::int64_t context, c10::Device device,
                                              const std::atomic<bool>& stop,
                                              std::function<void()> after_layer = {},
                                              at::ScalarType type = at::kFloat);

/// The entropy of token frequencies, in nats, see TextChance::frequencies. Requires a file of at
/// least one token.
double entropy_of_frequencies(const TokenFile& text);

// Measures how far the predictions of two models differ on the same tokens.
//
// Shapes: B windows of T tokens.

/// Means and maxima over all predictions: one per token of the windows, for encoder-decoders one
/// per token of their second halves.
struct PredictionComparison {
  std::int64_t tokens = 0;
  double kl = 0.0;                  ///< KL(source ‖ result), mean, in nats per token
  double largest_kl = 0.0;          ///< of one token
  double mean_difference = 0.0;     ///< of two logits, absolute
  double largest_difference = 0.0;  ///< of two logits
  double largest_logit = 0.0;       ///< of the source, absolute
  double agreement = 0.0;           ///< how often the most likely token is the same, 0 to 1
};

/// Steps of compare_predictions(): layers of both models, and parts of the logits.
std::size_t steps_to_compare(const Model& source, const Model& result, const Batches& windows);

/// Throws kBadInput if the two have different vocabularies or numbers of logits.
void check_same_vocabulary(const Model& source, const Model& result);

/// Runs both models over `windows` (int64 [B, T] each) in fp32, without masking. Holds one layer at
/// a time in memory, plus the hidden states of all windows and two output projections. Calls
/// `progress`, unless it is empty, with the number of steps done. Throws what
/// check_same_vocabulary() does, kInterrupted soon after `stop` turns true.
PredictionComparison compare_predictions(const Model& source, const Model& result,
                                         const Batches& windows, c10::Device device,
                                         const std::function<void(std::size_t)>& progress,
                                         const std::atomic<bool>& stop);

/// Random tokens in as many windows as read_windows() would read from a long file, int64 [B, T]
/// each; deterministic for a vocabulary and settings.
Batches random_windows(std::int64_t vocab_size, const WindowSettings& settings);

// Measures how well conversions of a model keep its predictions on a text, layer by layer: one
// layer and the hidden states of the text are in memory at a time.

/// Windows of a token file.
struct WindowRange {
  std::int64_t first = 0;        ///< the first token
  std::int64_t windows = 1;      ///< of `context` tokens each
  std::int64_t context = 512;    ///< tokens
  std::int64_t batch = 8;        ///< windows at a time
  std::int64_t spread_over = 0;  ///< windows from all over so many; 0: consecutive ones
};

/// How a model predicts the text.
struct TextQuality {
  /// Mean loss of the model's objective, in nats per token, as evaluate() computes it. None for
  /// models without an output head and for BERT-like models whose mask token is not known.
  std::optional<double> loss;
  /// Mean KL of the source's predictions from the model's, in nats per token; none without a loss.
  std::optional<double> divergence;
  /// Mean cosine of the last hidden state of each token with the source's.
  double cosine = 1.0;
};

class TextQualityMeter {
 public:
  /// Computes models in `type` on `device`, log-probabilities in fp32. `progress`, unless empty, is
  /// called after each layer of each model. Throws kBadInput if the part is not inside the file,
  /// for tokens outside the vocabulary, and for losses that are not finite; kInterrupted soon after
  /// `stop` turns true. Keeps references to `source` and `stop`.
  TextQualityMeter(const Model& source, const TokenFile& data, const WindowRange& part,
                   c10::Device device, const std::atomic<bool>& stop,
                   std::function<void()> progress = {}, at::ScalarType type = at::kFloat);

  TextQuality of_source() const { return source_quality_; }

  /// Of a result of the source: another model for the same tokens. Throws as the constructor.
  TextQuality of(const Model& model) const;

  /// Of the source with heads pooled according to `plan`, which is not executed. The plan must have
  /// no refiner and keep positions and the order of heads. Throws as the constructor.
  TextQuality of(const ConversionPlan& plan) const;

  /// Tokens that each model predicted; 0 if none has a loss.
  std::int64_t predicted_tokens() const;

 private:
  void read(const TokenFile& data, const WindowRange& part);
  TextQuality quality_of(const Model& model, const Batches& hidden) const;
  LmHeadInputs predictions(const OutputHead& head, const Batches& hidden, std::size_t batch) const;
  // The loss and, if it is compared with the source, the divergence.
  TextQuality predictions_of(const Model& model, const Batches& hidden, bool compares) const;

  const Model& source_;
  c10::Device device_;
  at::ScalarType type_;
  const std::atomic<bool>& stop_;
  std::function<void()> progress_;
  Batches windows_;
  std::vector<TaskBatch> answers_;  // to the windows; empty: no loss
  Batches source_hidden_;
  TextQuality source_quality_;
};

}  // namespace regroup
