// Text infilling, compared with hand-computed examples.
#include "uptrain/train/text_infilling.h"

#include <cstdlib>
#include <set>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/tensor.h>
#include <catch2/catch_test_macros.hpp>

namespace regroup {
namespace {

constexpr std::int64_t kMaskId = 999, kEndToken = 2, kStartToken = 0;

std::vector<std::int64_t> numbers_in(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.flatten().contiguous();
  const auto* values = flat.const_data_ptr<std::int64_t>();
  return {values, values + flat.numel()};
}

}  // namespace

TEST_CASE("30 % of the tokens are hidden behind one mask for 3 tokens on average", "[uptrain]") {
  const auto check = [](std::int64_t context, std::int64_t hidden, std::int64_t spans) {
    CAPTURE(context);
    const SpanCounts counts = infilling_counts(context, false);
    CHECK(counts.hidden == hidden);
    CHECK(counts.spans == spans);
    CHECK(counts.source == context - hidden + spans);
    CHECK(counts.target == context);
    CHECK(infilling_counts(context, true).source == counts.source + 1);
    CHECK(infilling_counts(context, true).target == context + 1);
  };
  check(2, 1, 1);
  check(10, 3, 1);
  check(13, 4, 1);  // 3.9 and 1.33
  check(30, 9, 3);
  check(100, 30, 10);
}

TEST_CASE("the decoder writes the whole text, of which the encoder reads what is shown",
          "[uptrain]") {
  const at::Tensor ids = at::arange(10, 20, at::kLong).view({1, 10});
  const TextPair text =
      infill_text(ids, 4, {.token = kMaskId, .end_token = kEndToken, .seed = 3}, kStartToken);
  CHECK(numbers_in(text.source) == std::vector<std::int64_t>{10, 11, 12, 13, 14, 15, 16, 999, 2});
  CHECK(numbers_in(text.answers) ==
        std::vector<std::int64_t>{10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 2});
  CHECK(numbers_in(text.target) ==
        std::vector<std::int64_t>{0, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19});
  const TextPair endless =
      infill_text(ids, 4, {.token = kMaskId, .end_token = {}, .seed = 3}, kStartToken);
  CHECK(numbers_in(endless.source) == std::vector<std::int64_t>{10, 11, 12, 13, 14, 15, 16, 999});
  CHECK(endless.answers.equal(ids));
}

TEST_CASE("each hidden span is replaced by one mask token, and other tokens keep their order",
          "[uptrain]") {
  const at::Tensor ids = at::arange(100, at::kLong).view({1, 100});
  std::set<std::vector<std::int64_t>> seen;
  std::vector<std::int64_t> hidden_at(100);
  for (std::int64_t window = 0; window < 400; ++window) {
    const auto source = numbers_in(
        infill_text(ids, window, {.token = kMaskId, .end_token = {}, .seed = 5}, kStartToken)
            .source);
    std::int64_t masks = 0, last = -1;
    bool after_mask = false;
    for (const std::int64_t id : source) {
      if (id == kMaskId) {
        CHECK_FALSE(after_mask);
        ++masks;
      } else {
        CHECK((after_mask ? id > last + 1 : id == last + 1));
        last = id;
      }
      after_mask = id == kMaskId;
    }
    CHECK(masks == 10);
    const std::set<std::int64_t> shown(source.begin(), source.end());
    for (std::int64_t i = 0; i < 100; ++i) {
      hidden_at[static_cast<std::size_t>(i)] += shown.contains(i) ? 0 : 1;
    }
    seen.insert(source);
  }
  CHECK(seen.size() == 400);
  for (std::size_t i = 20; i < 80; ++i) {
    CHECK(std::abs(static_cast<double>(hidden_at[i]) / 400 - 0.3) < 0.12);
  }
}

TEST_CASE("a window is masked alike in every batch and otherwise with another seed", "[uptrain]") {
  const at::Tensor ids = at::arange(200, at::kLong).view({4, 50});
  const Hiding infilling{.token = kMaskId, .end_token = kEndToken, .seed = 1};
  const TextPair all = infill_text(ids, 0, infilling, kStartToken);
  const TextPair last = infill_text(ids.narrow(0, 2, 2), 2, infilling, kStartToken);
  CHECK(last.source.equal(all.source.narrow(0, 2, 2)));
  CHECK(last.target.equal(all.target.narrow(0, 2, 2)));
  const Hiding other{.token = kMaskId, .end_token = kEndToken, .seed = 2};
  CHECK_FALSE(infill_text(ids, 0, other, kStartToken).source.equal(all.source));
}

}  // namespace regroup
