// Whether a causal model predicts a text at all.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>

#include <c10/core/Device.h>

#include "formats/model/model.h"
#include "formats/token_files/token_file.h"

namespace regroup {

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
                                              std::function<void()> after_layer = {});

/// The entropy of token frequencies, in nats, see TextChance::frequencies. Requires a file of at
/// least one token.
double entropy_of_frequencies(const TokenFile& text);

}  // namespace regroup
