#include "uptrain/ops/attention.h"

#include <atomic>
#include <cmath>
#include <limits>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <torch/csrc/autograd/autograd.h>

#include "formats/base/error.h"
#include "formats/spec/alibi.h"
#include "tests/refusal.h"
#include "tests/uptrain/golden_case.h"
#include "uptrain/ops/rope.h"

namespace regroup {
namespace {

constexpr std::int64_t kBatch = 2, kQueryHeads = 6, kKvHeads = 2, kLength = 37, kHeadDim = 16;
const std::vector<double> kSlopes{0.5, 0.25, 0.125, 0.7071067811865476, 0.03125, 0.003};

Heads random_heads(at::ScalarType type, std::int64_t length = kLength) {
  at::Generator generator = at::detail::createCPUGenerator(3);
  const auto options = at::TensorOptions().dtype(at::kDouble);
  const auto draw = [&](std::int64_t heads) {
    return at::randn({kBatch, heads, length, kHeadDim}, generator, options)
        .to(type)
        .requires_grad_(true);
  };
  return {draw(kQueryHeads), draw(kKvHeads), draw(kKvHeads)};
}

// The definition, written explicitly: every query head has its own copy of keys and values.
at::Tensor plain_attention(const Heads& heads, const std::vector<double>& slopes,
                           std::int64_t window, bool causal = true) {
  const auto wide = at::TensorOptions().dtype(at::kDouble);
  const auto repeated = [](const at::Tensor& x) {
    return x.to(at::kDouble).repeat_interleave(kQueryHeads / kKvHeads, 1);
  };
  const at::Tensor position = at::arange(heads.q.size(2), wide);
  const at::Tensor behind = position.view({-1, 1}) - position.view({1, -1});  // i - j
  at::Tensor scores = at::matmul(heads.q.to(at::kDouble), repeated(heads.k).transpose(2, 3)) /
                      std::sqrt(static_cast<double>(kHeadDim));
  scores = scores - at::tensor(slopes, wide).view({1, -1, 1, 1}) * behind;
  const at::Tensor hidden =
      causal ? behind.lt(0).logical_or(behind.ge(window)) : behind.abs().ge(window);
  scores = scores.masked_fill(hidden, -std::numeric_limits<double>::infinity());
  return at::matmul(at::softmax(scores, -1), repeated(heads.v));
}

// The output and the gradients of q, k and v for a fixed gradient of the output.
std::vector<at::Tensor> output_and_gradients(const at::Tensor& output, const Heads& heads) {
  at::Generator generator = at::detail::createCPUGenerator(4);
  const at::Tensor outer =
      at::randn(output.sizes(), generator, at::TensorOptions().dtype(at::kDouble));
  std::vector<at::Tensor> all = torch::autograd::grad({output}, {heads.q, heads.k, heads.v},
                                                      {outer.to(output.scalar_type())});
  all.push_back(output);
  return all;
}

double worst_of(const std::vector<at::Tensor>& one, const std::vector<at::Tensor>& other) {
  double largest = 0.0;
  for (std::size_t i = 0; i < one.size(); ++i) {
    largest = std::max(largest, largest_difference(one[i].detach(), other[i].detach()));
  }
  return largest;
}

const std::vector<double> kNoSlopes(kQueryHeads, 0.0);

}  // namespace

TEST_CASE("grouped attention and its gradients equal the definition", "[uptrain]") {
  const Heads heads = random_heads(at::kFloat);
  const auto computed = output_and_gradients(attend(heads, {}), heads);
  const auto defined = output_and_gradients(plain_attention(heads, kNoSlopes, kLength), heads);
  CHECK(worst_of(computed, defined) <= 1e-5);
}

TEST_CASE("sliding-window attention equals the definition", "[uptrain]") {
  // One block, several, a last one that is not full, and blocks wider than the least.
  const auto [length, window] = GENERATE(table<std::int64_t, std::int64_t>({{kLength, 1},
                                                                            {kLength, 5},
                                                                            {kLength, 36},
                                                                            {128, 127},
                                                                            {256, 128},
                                                                            {300, 1},
                                                                            {300, 100},
                                                                            {300, 128},
                                                                            {300, 129},
                                                                            {300, 299},
                                                                            {1300, 1100}}));
  CAPTURE(length, window);
  const Heads heads = random_heads(at::kFloat, length);
  SlidingWindow sliding(window, heads.q.options());
  const auto computed = output_and_gradients(attend_in_window(heads, sliding), heads);
  const auto defined = output_and_gradients(plain_attention(heads, kNoSlopes, window), heads);
  CHECK(worst_of(computed, defined) <= 1e-5);
}

TEST_CASE("a sliding window on both sides of a query equals the definition", "[uptrain]") {
  const auto [length, window] = GENERATE(table<std::int64_t, std::int64_t>(
      {{kLength, 1}, {kLength, 5}, {256, 65}, {300, 1}, {300, 65}, {300, 129}, {300, 299}}));
  CAPTURE(length, window);
  const Heads heads = random_heads(at::kFloat, length);
  SlidingWindow sliding(window, heads.q.options(), /*causal=*/false);
  const auto computed = output_and_gradients(attend_in_window(heads, sliding), heads);
  const auto defined =
      output_and_gradients(plain_attention(heads, kNoSlopes, window, /*causal=*/false), heads);
  CHECK(worst_of(computed, defined) <= 1e-5);
  const auto wider = plain_attention(heads, kNoSlopes, window + 1, /*causal=*/false);
  CHECK(worst_of(computed, output_and_gradients(wider, heads)) > 1e-2);
}

TEST_CASE("ALiBi in both forms equals the definition including gradients", "[uptrain]") {
  const auto form = GENERATE(AlibiForm::kBias, AlibiForm::kExtraDimensions);
  const Heads heads = random_heads(at::kFloat);
  const Alibi alibi(kSlopes, kHeadDim, heads.q.options().requires_grad(false));
  const auto computed = output_and_gradients(alibi.attend(heads, form), heads);
  CHECK(worst_of(computed, output_and_gradients(plain_attention(heads, kSlopes, kLength), heads)) <=
        2e-5);
  CHECK(worst_of(computed,
                 output_and_gradients(plain_attention(heads, kNoSlopes, kLength), heads)) > 0.1);
}

TEST_CASE("ALiBi in a sliding window equals the definition", "[uptrain]") {
  const auto [length, window] =
      GENERATE(table<std::int64_t, std::int64_t>({{kLength, 9}, {300, 140}}));
  CAPTURE(length, window);
  const Heads heads = random_heads(at::kFloat, length);
  const Alibi alibi(kSlopes, kHeadDim, heads.q.options().requires_grad(false));
  SlidingWindow sliding(window, heads.q.options());
  const auto computed =
      output_and_gradients(alibi.attend(heads, AlibiForm::kBias, &sliding), heads);
  const auto defined = output_and_gradients(plain_attention(heads, kSlopes, window), heads);
  // A bias grows with the position of its key, and so does its rounding in fp32.
  CHECK(worst_of(computed, defined) <= std::max(2e-5, 1.2e-7 * static_cast<double>(length)));
}

TEST_CASE("both forms of ALiBi are equally accurate in bf16", "[uptrain]") {
  const Heads heads = random_heads(at::kBFloat16);
  const Alibi alibi(kSlopes, kHeadDim, heads.q.options().requires_grad(false));
  const auto defined = output_and_gradients(plain_attention(heads, kSlopes, kLength), heads);
  for (const AlibiForm form : {AlibiForm::kBias, AlibiForm::kExtraDimensions}) {
    CHECK(worst_of(output_and_gradients(alibi.attend(heads, form), heads), defined) <= 0.05);
  }
}

// Each query head separately: its queries with its group's keys, plus its own bias.
at::Tensor attention_head_by_head(const Heads& heads, const at::Tensor& bias, bool causal) {
  const std::int64_t per_group = heads.q.size(1) / heads.k.size(1);
  std::vector<at::Tensor> mixed;
  for (std::int64_t h = 0; h < heads.q.size(1); ++h) {
    const at::Tensor q = heads.q.select(1, h), k = heads.k.select(1, h / per_group);
    at::Tensor scores = at::matmul(q, k.transpose(1, 2)) + bias.select(1, h);  // [B, T, S]
    if (causal) {
      const at::Tensor hidden =
          at::full({q.size(1), k.size(1)}, -std::numeric_limits<double>::infinity(), q.options());
      scores = scores + hidden.triu(1);
    }
    mixed.push_back(at::matmul(at::softmax(scores, -1), heads.v.select(1, h / per_group)));
  }
  return at::stack(mixed, 1);
}

TEST_CASE("ALiBi in bf16 refuses positions that its dimensions cannot hold", "[uptrain]") {
  const auto options = at::TensorOptions(at::kBFloat16);
  const std::vector<double> slopes = {0.5};
  const at::Tensor x = at::zeros({1, 1, 65'537, 8}, options);
  CHECK_THAT(
      refusal_of([&] {
        static_cast<void>(Alibi(slopes, 8, options).attend({x, x, x}, AlibiForm::kExtraDimensions));
      }),
      is_wrong_usage("at most 65536 tokens", "fp32"));
}

TEST_CASE("T5 attention equals its formula for every role and head", "[uptrain]") {
  const at::NoGradGuard no_gradients;
  const auto groups = GENERATE(12, 4, 3, 1);
  const auto role = GENERATE(AttentionRole::kSelf, AttentionRole::kCross, AttentionRole::kEncoder);
  CAPTURE(groups, name_of(role));
  const std::int64_t queries = 9, keys = role == AttentionRole::kCross ? 5 : queries;
  const RelativeBiasSpec spec{8, 6};
  at::Generator generator = at::detail::createCPUGenerator(5);
  const auto draw = [&](at::IntArrayRef shape) {
    return at::randn(shape, generator, at::TensorOptions().dtype(at::kDouble));
  };
  const Heads heads{draw({2, 12, queries, 3}), draw({2, groups, keys, 3}),
                    draw({2, groups, keys, 3})};
  const at::Tensor table = draw({spec.buckets, 12});
  const bool causal = role == AttentionRole::kSelf;
  at::Tensor bias = at::zeros({1, 12, queries, keys}, table.options());
  at::Tensor mask;  // none in cross-attention, which is not masked
  if (role != AttentionRole::kCross) {
    RelativeBuckets buckets(spec);
    mask = relative_bias(table, buckets, queries, causal);
    for (std::int64_t i = 0; i < queries; ++i) {
      for (std::int64_t j = 0; j < keys; ++j) {
        bias.select(3, j).select(2, i).copy_(
            table.select(0, relative_bucket(spec, j - i, causal)).unsqueeze(0));
      }
    }
  }
  const at::Tensor mixed = attend(heads, mask, 1.0, /*causal=*/false);
  CHECK(largest_difference(mixed, attention_head_by_head(heads, bias, causal)) <= 1e-12);
}

TEST_CASE("ALiBi's bias is distance times slope for each query head", "[uptrain]") {
  const auto [query_heads, groups] =
      GENERATE(table<std::int64_t, std::int64_t>({{12, 4}, {8, 2}, {6, 3}, {5, 1}}));
  const std::int64_t length = 7, per_group = query_heads / groups;
  const std::vector<double> slopes = alibi_slopes(query_heads);
  const at::Tensor bias = symmetric_alibi_bias(at::tensor(slopes, at::kDouble).view({1, -1, 1, 1}),
                                               length, at::TensorOptions(at::kDouble));
  const at::Tensor grouped = bias.view({groups, per_group, length, length});
  for (std::int64_t h = 0; h < query_heads; ++h) {
    for (std::int64_t i = 0; i < length; ++i) {
      for (std::int64_t j = 0; j < length; ++j) {
        const auto of_head =
            -slopes[static_cast<std::size_t>(h)] * static_cast<double>(std::abs(i - j));
        CHECK(grouped[h / per_group][h % per_group][i][j].item<double>() == of_head);
      }
    }
  }
}

TEST_CASE("attention with ALiBi equals its formula for every role and head", "[uptrain]") {
  const at::NoGradGuard no_gradients;
  const auto [query_heads, groups] = GENERATE(
      table<std::int64_t, std::int64_t>({{12, 4}, {12, 12}, {12, 1}, {8, 2}, {6, 3}, {5, 1}}));
  const auto role = GENERATE(AttentionRole::kSelf, AttentionRole::kCross, AttentionRole::kEncoder);
  const auto form = GENERATE(AlibiForm::kBias, AlibiForm::kExtraDimensions);
  CAPTURE(query_heads, groups, name_of(role));
  const std::int64_t queries = 9, keys = role == AttentionRole::kCross ? 5 : queries;
  at::Generator generator = at::detail::createCPUGenerator(6);
  const at::TensorOptions wide(at::kDouble);
  const auto draw = [&](std::int64_t heads, std::int64_t length) {
    return at::randn({2, heads, length, 3}, generator, wide);
  };
  const Heads heads{draw(query_heads, queries), draw(groups, keys), draw(groups, keys)};
  const std::vector<double> slopes = alibi_slopes(query_heads);
  at::Tensor bias = at::zeros({1, query_heads, queries, keys}, wide);
  for (std::int64_t h = 0; role != AttentionRole::kCross && h < query_heads; ++h) {
    for (std::int64_t i = 0; i < queries; ++i) {
      for (std::int64_t j = 0; j < keys; ++j) {  // later keys are masked below
        bias[0][h][i][j] =
            -slopes[static_cast<std::size_t>(h)] * static_cast<double>(std::abs(i - j));
      }
    }
  }
  at::Tensor mixed;
  if (role == AttentionRole::kSelf) {
    mixed = Alibi(slopes, 3, wide, /*scale=*/1.0).attend(heads, form);
  } else if (role == AttentionRole::kEncoder) {
    const at::Tensor steep = at::tensor(slopes, wide).view({1, -1, 1, 1});
    mixed = attend(heads, symmetric_alibi_bias(steep, queries, wide), 1.0, /*causal=*/false);
  } else {
    mixed = attend(heads, {}, 1.0, /*causal=*/false);
  }
  const bool causal = role == AttentionRole::kSelf;
  CHECK(largest_difference(mixed, attention_head_by_head(heads, bias, causal)) <= 1e-12);
  if (role != AttentionRole::kCross) {
    const at::Tensor none = at::zeros_like(bias);
    CHECK(largest_difference(mixed, attention_head_by_head(heads, none, causal)) >= 1e-2);
  }
}

TEST_CASE("relative positions map to buckets as in the T5 paper's code", "[uptrain]") {
  // One direction: 8 buckets. Half of them are for distances 0 to 3, then 4·3^(k/4) up to 12.
  const RelativeBiasSpec spec{8, 12};
  const auto buckets = [&](std::int64_t first, std::int64_t last, bool causal) {
    std::vector<std::int64_t> all;
    for (std::int64_t distance = first; distance <= last; ++distance) {
      all.push_back(relative_bucket(spec, distance, causal));
    }
    return all;
  };
  // 4·3^(1/4) = 5.26, 4·3^(2/4) = 6.93, 4·3^(3/4) = 9.12
  CHECK(buckets(-14, 2, true) ==
        std::vector<std::int64_t>{7, 7, 7, 7, 7, 6, 6, 6, 5, 4, 4, 3, 2, 1, 0, 0, 0});
  // Two directions with 4 buckets each: 0 and 1 alone, then 2·6^(k/2): 2 to 4, and from 4.9 on.
  CHECK(buckets(-6, 6, false) == std::vector<std::int64_t>{3, 3, 2, 2, 2, 1, 0, 5, 6, 6, 6, 7, 7});
  // T5's own: 32 buckets up to 128, exact at powers of two.
  const RelativeBiasSpec own;
  CHECK(relative_bucket(own, -15, true) == 15);
  CHECK(relative_bucket(own, -16, true) == 16);
  CHECK(relative_bucket(own, -127, true) == 31);
  CHECK(relative_bucket(own, -1000000, true) == 31);
  CHECK(relative_bucket(own, 16, false) == 16 + 10);
  CHECK(relative_bucket(own, 32, false) == 16 + 12);
  CHECK(relative_bucket(own, 64, false) == 16 + 14);
  CHECK(relative_bucket(own, -8, false) == 8);
}

TEST_CASE("a relative bias depends on the distance of query and key", "[uptrain]") {
  // One head whose bias is the bucket's number: row i and column j hold the bucket of j - i.
  const at::Tensor table = at::arange(8, at::kFloat).unsqueeze(1);
  const auto expected = [](const std::vector<float>& rows) {
    return at::tensor(rows).view({1, 1, 3, 3});
  };
  RelativeBuckets buckets({8, 12});
  CHECK(relative_bias(table, buckets, 3, false).equal(expected({0, 5, 6, 1, 0, 5, 2, 1, 0})));
  const float hidden = -std::numeric_limits<float>::infinity();
  CHECK(relative_bias(table, buckets, 3, true)
            .equal(expected({0, hidden, hidden, 1, 0, hidden, 2, 1, 0})));
}

TEST_CASE("fused features are split into heads according to the packing", "[uptrain]") {
  // Two query heads per group with one dimension each. Features are numbered by position.
  const at::Tensor features = at::arange(8, at::kFloat).view({1, 1, 8});
  const auto values = [](const at::Tensor& heads) {  // [1, n, 1, 1]
    const at::Tensor flat = heads.flatten().contiguous();
    return std::vector<float>(flat.const_data_ptr<float>(),
                              flat.const_data_ptr<float>() + flat.numel());
  };
  const Heads one_after_another = split_fused_heads(features, Packing::kQueryKeyValue, 4, 2, 1);
  CHECK(values(one_after_another.q) == std::vector<float>{0, 1, 2, 3});
  CHECK(values(one_after_another.k) == std::vector<float>{4, 5});
  CHECK(values(one_after_another.v) == std::vector<float>{6, 7});
  const Heads by_group = split_fused_heads(features, Packing::kPerGroup, 4, 2, 1);
  CHECK(values(by_group.q) == std::vector<float>{0, 1, 4, 5});
  CHECK(values(by_group.k) == std::vector<float>{2, 6});
  CHECK(values(by_group.v) == std::vector<float>{3, 7});
}

TEST_CASE("attention that is computed in parts gives the same numbers", "[uptrain]") {
  const auto random = [](std::int64_t heads, std::int64_t length) {
    const at::Generator generator = at::detail::createCPUGenerator(heads);
    return at::randn({2, heads, length, 64}, generator, at::kFloat);
  };
  struct Case {
    std::int64_t query_heads, kv_heads, length;
    double allowed;
  };
  // Group by group, which changes nothing; and a head in steps, whose sums are of other parts. Both
  // round numbers below 8 about eight times, by up to 2.4e-7 each.
  for (const auto& [query_heads, kv_heads, length, allowed] :
       {Case{12, 3, 2000, 0.0}, Case{1, 1, 18'000, 16 * 2.4e-7}}) {
    const Heads heads = {random(query_heads, length), random(kv_heads, length),
                         random(kv_heads, length).flip(2)};
    const at::Tensor whole = attend(heads, {}, {});
    const at::NoGradGuard stoppable;
    CHECK(is_long(heads) == (allowed > 0.0));
    CHECK((attend(heads, {}, {}) - whole).abs().max().item<double>() <= allowed);
    std::atomic<bool> stop{true};
    const StopScope scope(&stop);
    CHECK(refusal_of([&] { attend(heads, {}, {}); }).kind() == ErrorKind::kInterrupted);
  }
}

}  // namespace regroup
