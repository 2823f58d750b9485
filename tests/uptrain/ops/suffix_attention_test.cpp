// Attention of the last positions of sequences: the same as the last rows of the whole attention.
#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/randn.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <torch/csrc/autograd/autograd.h>

#include "tests/uptrain/ops/relative_error.h"
#include "uptrain/ops/attention.h"

namespace regroup {
namespace {

using AttentionForm = std::function<at::Tensor(const Heads&)>;

struct NamedForm {
  std::string name;
  AttentionForm attend;
};

constexpr std::int64_t kSuffixWidth = 16;

// Every way in which the decoder of a model attends without a cache.
std::vector<NamedForm> all_forms(at::ScalarType type) {
  const at::TensorOptions options(type);
  const std::vector<double> slopes{0.5, 0.25, 0.125, 0.0625};
  const auto alibi = [=](AlibiForm form, std::int64_t window) -> AttentionForm {
    return [=](const Heads& heads) {
      SlidingWindow sliding(std::max<std::int64_t>(window, 1), options);
      return Alibi(slopes, kSuffixWidth, options)
          .attend(heads, form, window > 0 ? &sliding : nullptr);
    };
  };
  const auto windowed = [=](std::int64_t width) -> AttentionForm {
    return [=](const Heads& heads) {
      SlidingWindow window(width, options);
      return attend_in_window(heads, window);
    };
  };
  const auto capped = [](std::optional<std::int64_t> window) -> AttentionForm {
    return [=](const Heads& heads) {
      return attend_softcapped(
          heads, {.cap = 1.5, .scale = std::nullopt, .causal = true, .window = window});
    };
  };
  return {{"plain", [](const Heads& heads) { return attend(heads, {}, 0.3); }},
          {"ALiBi as a bias", alibi(AlibiForm::kBias, 0)},
          {"ALiBi as dimensions", alibi(AlibiForm::kExtraDimensions, 0)},
          {"ALiBi in a window", alibi(AlibiForm::kBias, 90)},
          {"a narrow window", windowed(5)},
          {"a window of several blocks", windowed(150)},
          {"a window wider than the prefix", windowed(370)},
          {"capped", capped(std::nullopt)},
          {"capped in a window", capped(70)}};
}

at::Tensor random_leaf(std::int64_t heads, std::int64_t length, at::ScalarType type) {
  return at::randn({2, length, heads, kSuffixWidth}).to(type).transpose(1, 2).requires_grad_();
}

// The largest relative error of the output and the gradients of the last `count` of 380 queries.
double error_of_suffix(const AttentionForm& attend, std::int64_t count, at::ScalarType type) {
  constexpr std::int64_t kKeys = 380;
  const Heads heads{random_leaf(4, kKeys, type), random_leaf(2, kKeys, type),
                    random_leaf(2, kKeys, type)};
  const at::Tensor outer = at::randn({2, 4, count, kSuffixWidth}).to(type);
  const std::vector<at::Tensor> leaves{heads.q, heads.k, heads.v};
  const auto results = [&](const Heads& inputs) {
    const at::Tensor last = attend(inputs).narrow(2, -count, count);
    std::vector<at::Tensor> all = torch::autograd::grad({last}, leaves, {outer});
    all.push_back(last.detach());
    return all;
  };
  const auto whole = results(heads);
  const auto part = results({heads.q.narrow(2, kKeys - count, count), heads.k, heads.v});
  double largest = 0.0;
  for (std::size_t i = 0; i < whole.size(); ++i) {
    largest = std::max(largest, relative_error(part[i], whole[i].to(at::kDouble)));
  }
  return largest;
}

}  // namespace

TEST_CASE("the last queries attend as they do among all, with the same gradients", "[uptrain]") {
  const std::int64_t count = GENERATE(1, 37, 95, 190, 379);
  for (const auto& [name, attend] : all_forms(at::kDouble)) {
    CAPTURE(name, count);
    CHECK(error_of_suffix(attend, count, at::kDouble) < 1e-6);  // the bias of ALiBi is fp32
  }
}

TEST_CASE("the last queries attend in bf16 as they do among all", "[uptrain]") {
  const std::int64_t count = GENERATE(37, 190);  // too few for tiles, and enough
  for (const auto& [name, attend] : all_forms(at::kBFloat16)) {
    CAPTURE(name, count);
    CHECK(error_of_suffix(attend, count, at::kBFloat16) < 1e-2);
  }
}

TEST_CASE("the last queries see the keys before them", "[uptrain]") {
  for (const auto& [name, attend] : all_forms(at::kDouble)) {
    CAPTURE(name);
    const Heads heads{random_leaf(4, 40, at::kDouble), random_leaf(2, 40, at::kDouble),
                      random_leaf(2, 40, at::kDouble)};
    const auto last = [&](const at::Tensor& x, std::int64_t count) {
      return x.narrow(2, 40 - count, count);
    };
    const at::Tensor with = attend({last(heads.q, 20), heads.k, heads.v});
    const at::Tensor without = attend({last(heads.q, 20), last(heads.k, 20), last(heads.v, 20)});
    CHECK(relative_error(without, with) > 0.05);
  }
}

}  // namespace regroup
