// Span corruption, compared with hand-computed examples.
#include <map>
#include <numeric>
#include <set>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/tensor.h>
#include <catch2/catch_test_macros.hpp>

#include "uptrain/train/text_infilling.h"

namespace regroup {
namespace {

constexpr std::int64_t kSentinel = 999, kEnd = 1, kStart = 0;

std::vector<std::int64_t> list_of(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.flatten().contiguous();
  const auto* values = flat.const_data_ptr<std::int64_t>();
  return {values, values + flat.numel()};
}

// The text that source and answers give together.
std::vector<std::int64_t> put_together(const std::vector<std::int64_t>& source,
                                       const std::vector<std::int64_t>& answers) {
  const auto is_sentinel = [](std::int64_t id) { return id > 900; };
  std::map<std::int64_t, std::vector<std::int64_t>> hidden;
  std::int64_t last = 0;
  for (const std::int64_t id : answers) {
    if (is_sentinel(id)) {
      CHECK(hidden[id].empty());
      last = id;
    } else {
      hidden[last].push_back(id);
    }
  }
  std::vector<std::int64_t> text;
  std::int64_t expected = kSentinel;
  for (const std::int64_t id : source) {
    if (is_sentinel(id)) {
      CHECK(id == expected--);
      text.insert(text.end(), hidden[id].begin(), hidden[id].end());
    } else {
      text.push_back(id);
    }
  }
  return text;
}

}  // namespace

TEST_CASE("15 % of the tokens are hidden in spans of 3 tokens on average", "[uptrain]") {
  const auto check = [](std::int64_t context, std::int64_t hidden, std::int64_t spans) {
    CAPTURE(context);
    const SpanCounts counts = span_counts(context, false);
    CHECK(counts.hidden == hidden);
    CHECK(counts.spans == spans);
    CHECK(counts.source == context - hidden + spans);
    CHECK(counts.target == hidden + spans);
    CHECK(span_counts(context, true).source == counts.source + 1);
    CHECK(span_counts(context, true).target == counts.target + 1);
  };
  check(2, 1, 1);
  check(10, 2, 1);  // 1.5 rounds to 2
  check(13, 2, 1);  // 1.95
  check(30, 5, 2);  // 4.5 and 1.67
  check(100, 15, 5);
  check(568, 85, 28);  // T5: 512 tokens for the encoder and 114 for the decoder, with end tokens
  CHECK(span_counts(568, true).source == 512);
  CHECK(span_counts(568, true).target == 114);
}

TEST_CASE("of two tokens the second is hidden", "[uptrain]") {
  const at::Tensor ids = at::tensor({7, 8}, at::kLong).view({1, 2});
  const TextPair text =
      corrupt_spans(ids, 0, {.token = kSentinel, .end_token = kEnd, .seed = 0}, kStart);
  CHECK(list_of(text.source) == std::vector<std::int64_t>{7, 999, 1});
  CHECK(list_of(text.answers) == std::vector<std::int64_t>{999, 8, 1});
  CHECK(list_of(text.target) == std::vector<std::int64_t>{0, 999, 8});
  const TextPair endless =
      corrupt_spans(ids, 0, {.token = kSentinel, .end_token = {}, .seed = 0}, kStart);
  CHECK(list_of(endless.source) == std::vector<std::int64_t>{7, 999});
  CHECK(list_of(endless.answers) == std::vector<std::int64_t>{999, 8});
}

TEST_CASE("of thirteen tokens the last two are hidden in one span", "[uptrain]") {
  const at::Tensor ids = at::arange(10, 23, at::kLong).view({1, 13});
  const TextPair text =
      corrupt_spans(ids, 4, {.token = kSentinel, .end_token = kEnd, .seed = 3}, kStart);
  CHECK(list_of(text.source) ==
        std::vector<std::int64_t>{10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 999, 1});
  CHECK(list_of(text.answers) == std::vector<std::int64_t>{999, 21, 22, 1});
  CHECK(list_of(text.target) == std::vector<std::int64_t>{0, 999, 21, 22});
}

TEST_CASE("source and answers together give the text", "[uptrain]") {
  const at::Tensor ids = at::arange(100, 300, at::kLong).view({2, 100});
  const TextPair text =
      corrupt_spans(ids, 0, {.token = kSentinel, .end_token = {}, .seed = 5}, kStart);
  for (std::int64_t window = 0; window < 2; ++window) {
    CHECK(put_together(list_of(text.source[window]), list_of(text.answers[window])) ==
          list_of(ids[window]));
  }
}

TEST_CASE("spans cover the window and depend on the seed and the window", "[uptrain]") {
  std::set<std::vector<std::int64_t>> seen;
  std::vector<std::int64_t> hidden_at(100);
  for (std::uint64_t window = 0; window < 400; ++window) {
    const auto spans = draw_spans(100, 7, window);
    REQUIRE(spans.size() == 10);
    CHECK(std::accumulate(spans.begin(), spans.end(), std::int64_t{0}) == 100);
    std::int64_t at = 0;
    for (std::size_t i = 0; i < spans.size(); ++i) {
      CHECK(spans[i] >= 1);
      for (std::int64_t k = 0; k < spans[i]; ++k, ++at) {
        hidden_at[static_cast<std::size_t>(at)] += static_cast<std::int64_t>(i % 2);
      }
    }
    CHECK(draw_spans(100, 7, window) == spans);
    seen.insert(spans);
  }
  CHECK(seen.size() > 390);
  CHECK(draw_spans(100, 8, 0) != draw_spans(100, 7, 0));
  // Every place except the first and the last few is hidden about equally often.
  for (std::size_t place = 10; place < 90; ++place) {
    CHECK(hidden_at[place] > 25);
    CHECK(hidden_at[place] < 110);
  }
}

TEST_CASE("the hidden tokens do not depend on the batch", "[uptrain]") {
  const at::Tensor ids = at::arange(100, 340, at::kLong).view({6, 40});
  const Hiding corruption{.token = kSentinel, .end_token = kEnd, .seed = 2};
  const TextPair all = corrupt_spans(ids, 10, corruption, kStart);
  const TextPair last = corrupt_spans(ids.narrow(0, 4, 2), 14, corruption, kStart);
  CHECK(last.source.equal(all.source.narrow(0, 4, 2)));
  CHECK(last.answers.equal(all.answers.narrow(0, 4, 2)));
}

}  // namespace regroup
