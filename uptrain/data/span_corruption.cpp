#include "uptrain/data/span_corruption.h"

#include <algorithm>

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include "uptrain/ops/permutation.h"

namespace regroup {
namespace {

// Cuts `total` into `parts` pieces of at least one each. The ends of all pieces except the last are
// distinct positions from 1 to total - 1.
std::vector<std::int64_t> cut(std::int64_t total, std::int64_t parts, std::uint64_t seed,
                              std::uint64_t stream) {
  std::vector<std::int64_t> ends{total};
  if (parts > 1) {
    const Permutation order(static_cast<std::uint64_t>(total - 1), seed, stream);
    for (std::int64_t i = 0; i < parts - 1; ++i) {
      ends.push_back(static_cast<std::int64_t>(order(static_cast<std::uint64_t>(i))) + 1);
    }
  }
  std::sort(ends.begin(), ends.end());
  for (std::size_t i = ends.size() - 1; i > 0; --i) {
    ends[i] -= ends[i - 1];
  }
  return ends;  // now lengths
}

// Writes one window's source and answers.
void corrupt(const std::int64_t* text, const std::vector<std::int64_t>& spans,
             const SpanCorruption& corruption, std::int64_t* source, std::int64_t* answers) {
  for (std::size_t i = 0; i < spans.size(); i += 2) {
    source = std::copy_n(text, spans[i], source);
    text += spans[i];
    *source++ = *answers++ = corruption.first_sentinel - static_cast<std::int64_t>(i / 2);
    answers = std::copy_n(text, spans[i + 1], answers);
    text += spans[i + 1];
  }
  if (corruption.end_token) {
    *source = *answers = *corruption.end_token;
  }
}

}  // namespace

SpanCounts span_counts(std::int64_t context, bool with_end_token, std::int64_t percent) {
  SpanCounts counts;
  counts.hidden = std::clamp<std::int64_t>((context * percent + 50) / 100, 1, context - 1);
  const std::int64_t most = std::min(counts.hidden, context - counts.hidden);
  counts.spans = std::clamp<std::int64_t>((counts.hidden * 2 + 3) / 6, 1, most);
  counts.source = context - counts.hidden + counts.spans + (with_end_token ? 1 : 0);
  counts.target = counts.hidden + counts.spans + (with_end_token ? 1 : 0);
  return counts;
}

std::vector<std::int64_t> draw_spans(std::int64_t context, std::uint64_t seed, std::uint64_t window,
                                     std::int64_t percent) {
  const SpanCounts counts = span_counts(context, false, percent);
  const auto shown = cut(context - counts.hidden, counts.spans, seed, window);
  const auto hidden = cut(counts.hidden, counts.spans, ~seed, window);
  std::vector<std::int64_t> spans;
  for (std::size_t i = 0; i < shown.size(); ++i) {
    spans.push_back(shown[i]);
    spans.push_back(hidden[i]);
  }
  return spans;
}

CorruptedText corrupt_spans(const at::Tensor& ids, std::int64_t first,
                            const SpanCorruption& corruption, std::int64_t start_token) {
  const std::int64_t windows = ids.size(0);
  const std::int64_t context = ids.size(1);
  const SpanCounts counts = span_counts(context, corruption.end_token.has_value());
  const at::Tensor text = ids.contiguous();
  CorruptedText result{at::empty({windows, counts.source}, at::kLong),
                       {},
                       at::empty({windows, counts.target}, at::kLong)};
  for (std::int64_t window = 0; window < windows; ++window) {
    const auto spans =
        draw_spans(context, corruption.seed, static_cast<std::uint64_t>(first + window));
    corrupt(text.const_data_ptr<std::int64_t>() + window * context, spans, corruption,
            result.source.mutable_data_ptr<std::int64_t>() + window * counts.source,
            result.answers.mutable_data_ptr<std::int64_t>() + window * counts.target);
  }
  const at::Tensor start = at::full({windows, 1}, start_token, at::kLong);
  result.target = at::cat({start, result.answers.narrow(1, 0, counts.target - 1)}, 1);
  return result;
}

}  // namespace regroup
