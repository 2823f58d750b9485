// Span corruption, T5's pretraining task: spans of a text are hidden and the decoder predicts them.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

namespace regroup {

/// Raffel et al. 2020, https://arxiv.org/abs/1910.10683, section 3.1.4: 15 % of the tokens in spans
/// of 3 on average. Sentinel k, <extra_id_k>, has the id first_sentinel - k.
struct SpanCorruption {
  std::int64_t first_sentinel = 0;
  std::optional<std::int64_t> end_token;  ///< ends both texts, where there is one
  std::uint64_t seed = 0;
};

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
/// followed by what it hides; both end with the end token. `target` is a start token followed by
/// the answers without the last one.
struct CorruptedText {
  at::Tensor source;   ///< int64 [B, SpanCounts::source]
  at::Tensor target;   ///< int64 [B, SpanCounts::target]
  at::Tensor answers;  ///< int64 [B, SpanCounts::target]
};

/// ids: int64 [B, C] in host memory, windows number `first` and following.
CorruptedText corrupt_spans(const at::Tensor& ids, std::int64_t first,
                            const SpanCorruption& corruption, std::int64_t start_token);

}  // namespace regroup
