// Texts with gaps: span corruption and infilling, and the tokens that mark them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "formats/model/model.h"

namespace regroup {

// Special tokens that training needs and a config does not name.

/// T5's sentinels <extra_id_0>, <extra_id_1>, …: their ids count down from the first.
struct Sentinels {
  std::int64_t first = 0;
  std::int64_t count = 100;  ///< as many as T5 has, where it is not known
};

/// Reads the sentinels from the tokenizer files of a model directory (tokenizer_config.json,
/// added_tokens.json, tokenizer.json); none if they name no <extra_id_0>. Throws kBadInput for a
/// file that is malformed or numbers the sentinels in another way.
std::optional<Sentinels> find_sentinels(const std::filesystem::path& directory);

/// The id of <mask> in the same files; none if they do not name it. Throws kBadInput for a
/// malformed file.
std::optional<std::int64_t> find_mask_token(const std::filesystem::path& directory);

/// The config's bos_token_id, if it is a number.
std::optional<std::int64_t> start_token_of(const Model& model);

/// The config's eos_token_id, if it is a single number.
std::optional<std::int64_t> end_token_of(const Model& model);

/// All tokens that end a text: eos_token_id of the config and of the directory's
/// generation_config.json, each a number or a list. Empty if neither has one. Throws kBadInput for
/// a malformed file.
std::vector<std::int64_t> end_tokens_of(const Model& model);

/// What hides tokens of windows. Which ones is a pure function of the seed and the window's number.
struct Hiding {
  std::int64_t token = 0;  ///< the mask token, or the first sentinel
  /// Ends both texts of an encoder-decoder, where there is one.
  std::optional<std::int64_t> end_token = std::nullopt;
  std::uint64_t seed = 0;
};

/// Texts for an encoder-decoder, int64 [B, tokens] each.
struct TextPair {
  at::Tensor source;   ///< what the encoder reads
  at::Tensor target;   ///< what the decoder reads: a start token, then the answers but the last
  at::Tensor answers;  ///< what the decoder writes
};

/// The decoder's input for these answers.
at::Tensor shifted_right(const at::Tensor& answers, std::int64_t start_token);

// Span corruption, T5's pretraining task: spans of a text are hidden and the decoder predicts them.
// Raffel et al. 2020, https://arxiv.org/abs/1910.10683, section 3.1.4: 15 % of the tokens in spans
// of 3 on average. Sentinel k, <extra_id_k>, has the id of the first one - k.

/// Token counts after corruption; the same for every window of that length.
struct SpanCounts {
  std::int64_t hidden = 0;  ///< tokens: that share of them, at least one, rounded to nearest
  std::int64_t spans = 0;   ///< a third of these, at least one; each takes a sentinel
  std::int64_t source = 0;  ///< tokens the encoder reads
  std::int64_t target = 0;  ///< tokens the decoder writes
};

constexpr std::int64_t kHiddenByT5 = 15;  ///< percent of the tokens

/// `context` of at least 2 tokens, of which `percent` are hidden.
SpanCounts span_counts(std::int64_t context, bool with_end_token,
                       std::int64_t percent = kHiddenByT5);

/// Lengths of the spans of one window, alternating shown and hidden, shown first. A pure function
/// of the seed and the window's number; all ways to cut are about equally likely.
std::vector<std::int64_t> draw_spans(std::int64_t context, std::uint64_t seed, std::uint64_t window,
                                     std::int64_t percent = kHiddenByT5);

/// `source` is the text with each hidden span replaced by its sentinel, `answers` each sentinel
/// followed by what it hides; both end with the end token. ids: int64 [B, C] in host memory,
/// windows number `first` and following.
TextPair corrupt_spans(const at::Tensor& ids, std::int64_t first, const Hiding& hiding,
                       std::int64_t start_token);

// Text infilling, BART's pretraining task: spans of a text are hidden and the decoder writes the
// whole text. Lewis et al. 2019, https://arxiv.org/abs/1910.13461, section 2.2: 30 % of the tokens
// in spans of 3 on average, each replaced by one mask token. All windows have the same number of
// spans, of at least one token each, where the paper draws lengths from a Poisson distribution.
// Sentences keep their order: windows have no marks of sentences.

/// Token counts of the task; the same for every window of that length. `context` of at least 2.
SpanCounts infilling_counts(std::int64_t context, bool with_end_token);

/// `source` is the text with each hidden span replaced by the mask token, `answers` the text; both
/// end with the end token. ids: int64 [B, C] in host memory, windows number `first` and following.
TextPair infill_text(const at::Tensor& ids, std::int64_t first, const Hiding& hiding,
                     std::int64_t start_token);

}  // namespace regroup
