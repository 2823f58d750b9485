#include "uptrain/data/text_infilling.h"

#include <algorithm>

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

namespace regroup {
namespace {

constexpr std::int64_t kHiddenPercent = 30;

// Writes one window's source, without the end token.
void mask_spans(const std::int64_t* text, const std::vector<std::int64_t>& spans,
                std::int64_t mask_token, std::int64_t* source) {
  for (std::size_t i = 0; i < spans.size(); i += 2) {
    source = std::copy_n(text, spans[i], source);
    *source++ = mask_token;
    text += spans[i] + spans[i + 1];
  }
}

}  // namespace

SpanCounts infilling_counts(std::int64_t context, bool with_end_token) {
  SpanCounts counts = span_counts(context, with_end_token, kHiddenPercent);
  counts.target = context + (with_end_token ? 1 : 0);
  return counts;
}

CorruptedText infill_text(const at::Tensor& ids, std::int64_t first, const TextInfilling& infilling,
                          std::int64_t start_token) {
  const std::int64_t windows = ids.size(0);
  const std::int64_t context = ids.size(1);
  const SpanCounts counts = infilling_counts(context, infilling.end_token.has_value());
  const at::Tensor text = ids.contiguous();
  CorruptedText result{at::empty({windows, counts.source}, at::kLong), {}, text};
  for (std::int64_t window = 0; window < windows; ++window) {
    const auto spans = draw_spans(context, infilling.seed,
                                  static_cast<std::uint64_t>(first + window), kHiddenPercent);
    mask_spans(text.const_data_ptr<std::int64_t>() + window * context, spans, infilling.mask_token,
               result.source.mutable_data_ptr<std::int64_t>() + window * counts.source);
  }
  if (infilling.end_token) {
    result.source.select(1, counts.source - 1).fill_(*infilling.end_token);
    result.answers = at::cat({text, at::full({windows, 1}, *infilling.end_token, at::kLong)}, 1);
  }
  const at::Tensor start = at::full({windows, 1}, start_token, at::kLong);
  result.target = at::cat({start, result.answers.narrow(1, 0, counts.target - 1)}, 1);
  return result;
}

}  // namespace regroup
