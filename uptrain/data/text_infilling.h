// Text infilling, BART's pretraining task: spans of a text are hidden and the decoder writes the
// whole text.
#pragma once

#include <cstdint>
#include <optional>

#include <ATen/core/Tensor.h>

#include "uptrain/data/span_corruption.h"

namespace regroup {

/// Lewis et al. 2019, https://arxiv.org/abs/1910.13461, section 2.2: 30 % of the tokens in spans of
/// 3 on average, each replaced by one mask token. All windows have the same number of spans, of at
/// least one token each, where the paper draws lengths from a Poisson distribution. Sentences keep
/// their order: windows have no marks of sentences.
struct TextInfilling {
  std::int64_t mask_token = 0;
  std::optional<std::int64_t> end_token;  ///< ends both texts, where there is one
  std::uint64_t seed = 0;
};

/// Token counts of the task; the same for every window of that length. `context` of at least 2.
SpanCounts infilling_counts(std::int64_t context, bool with_end_token);

/// `source` is the text with each hidden span replaced by the mask token, `answers` the text; both
/// end with the end token. `target` is a start token followed by the answers without the last one.
/// A pure function of the seed and the window's number. ids: int64 [B, C] in host memory, windows
/// number `first` and following.
CorruptedText infill_text(const at::Tensor& ids, std::int64_t first, const TextInfilling& infilling,
                          std::int64_t start_token);

}  // namespace regroup
