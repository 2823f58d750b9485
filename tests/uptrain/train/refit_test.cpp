// Refitted models compared with their source, on text that they were not refitted on.
#include "uptrain/train/refit.h"

#include <cmath>
#include <limits>
#include <memory>
#include <numeric>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <catch2/catch_test_macros.hpp>

#include "formats/base/json.h"
#include "tests/converter/conversion.h"
#include "tests/file_tree.h"
#include "tests/refusal.h"
#include "tests/temporary_directory.h"
#include "tests/uptrain/golden_case.h"
#include "tests/uptrain/never_stopped.h"
#include "tests/uptrain/token_text.h"
#include "uptrain/ops/expert_routing.h"
#include "uptrain/train/objective.h"

namespace regroup {
namespace {

TokenFile put_random_tokens(const std::filesystem::path& path, std::int64_t vocab_size,
                            std::uint64_t count) {
  std::vector<std::uint16_t> ids;
  for (std::uint64_t i = 0; i < count; ++i) {
    ids.push_back(static_cast<std::uint16_t>(mix(i, 7) % static_cast<std::uint64_t>(vocab_size)));
  }
  put_file(path, bytes_of_numbers(ids));
  return TokenFile::open(path);
}

RefitSettings short_settings() {
  RefitSettings settings;
  settings.windows = {.context = 16, .batch = 8, .max_tokens = 4096};
  settings.steps = 40;
  return settings;
}

// A golden model converted to half of its kv heads, with and without refitting.
struct Halved {
  TemporaryDirectory directory;
  GoldenCase golden;
  TokenFile data;

  explicit Halved(const char* name)
      : golden(load_golden_case(name)),
        data(put_random_tokens(directory / "tokens", golden.source.spec.vocab_size, 4096)) {}

  ConversionRequest request(PoolMethod method) const {
    ConversionRequest half;
    half.kv_heads = {golden.source.spec.kv_heads.front() / 2};
    half.pooling = {method, 0};
    half.dtype = DType::kF32;
    return half;
  }

  std::vector<LayerReport> convert_to(const char* name, ConversionRequest request,
                                      std::shared_ptr<AttentionRefiner> refiner) const {
    request.refiner = std::move(refiner);
    return execute_conversion(plan_conversion(golden.source, request), golden.source,
                              directory / name, {}, kNeverStopped);
  }

  std::shared_ptr<Refit> refit() const {
    return std::make_shared<Refit>(golden.source, data, short_settings(), kNeverStopped);
  }

  // The mean squared error of the logits.
  double error_of(const char* name) const {
    const at::NoGradGuard no_gradients;
    const auto logits = [&](const Model& model) {
      return window_logits(load_transformer(model, at::kFloat, at::kCPU), golden.tokens);
    };
    return (logits(open_model(directory / name)) - logits(golden.source))
        .square()
        .mean()
        .item<double>();
  }
};

// The relative squared error of outputs that differ only by rounding: fp32 sums over the hidden
// features.
double rounding_error(const ModelSpec& spec) {
  return std::pow(static_cast<double>(spec.hidden_size) *
                      static_cast<double>(std::numeric_limits<float>::epsilon()),
                  2);
}

std::vector<std::int64_t> as_they_are(const AttentionHeads& heads) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(heads.query_heads));
  std::iota(order.begin(), order.end(), 0);
  return order;
}

}  // namespace

TEST_CASE("refitting brings attention outputs and poor logits closer to the source", "[uptrain]") {
  for (const char* name :
       {"llama_mha", "bloom", "gpt2", "gpt_neox", "mpt", "bert", "qwen3", "t5", "bart", "mbart"}) {
    for (const PoolMethod method : {PoolMethod::kMean, PoolMethod::kLowrank}) {
      CAPTURE(name, name_of(method));
      const Halved half(name);
      const ConversionRequest request = half.request(method);
      half.convert_to("pooled", request, nullptr);
      const auto layers = half.convert_to("refitted", request, half.refit());
      REQUIRE(!layers.empty());
      for (const LayerReport& layer : layers) {
        CAPTURE(layer.layer, name_of(layer.role));
        REQUIRE(layer.refinement.has_value());
        CHECK(layer.refinement->error_after < layer.refinement->error_before);
      }
      // In a random model, the small gain after lowrank in each layer may be lost in later layers.
      if (method == PoolMethod::kMean) {
        CHECK(half.error_of("refitted") < half.error_of("pooled"));
      }
    }
  }
}

TEST_CASE("refitting reports layer and step and error of every step in order", "[uptrain]") {
  const Halved half("llama_mha");
  const std::shared_ptr<Refit> refit = half.refit();
  std::vector<RefinementStep> seen;
  refit->report_to([&](const RefinementStep& step) { seen.push_back(step); });
  const auto layers = half.convert_to("refitted", half.request(PoolMethod::kMean), refit);
  const auto each = static_cast<std::size_t>(refit->steps());
  REQUIRE(seen.size() == layers.size() * each);
  for (std::size_t i = 0; i < seen.size(); ++i) {
    CHECK(seen[i].layer == i / each);
    CHECK(seen[i].step == static_cast<std::int64_t>(i % each) + 1);
    CHECK(seen[i].error > 0.0);
  }
  CHECK(seen[each - 1].error < seen.front().error);
}

TEST_CASE("clamped projections are refitted with the clamp", "[uptrain]") {
  const Halved half("olmo");
  REQUIRE(half.golden.source.spec.clip_qkv.has_value());
  const ConversionRequest request = half.request(PoolMethod::kMean);
  half.convert_to("pooled", request, nullptr);
  half.convert_to("refitted", request, half.refit());
  CHECK(half.error_of("refitted") < half.error_of("pooled"));
}

TEST_CASE("reordered heads are refitted with their slopes and biases", "[uptrain]") {
  for (const char* name : {"bloom", "umt5", "t5"}) {
    CAPTURE(name);
    const Halved half(name);
    const ModelSpec& spec = half.golden.source.spec;
    HeadOrder order;
    for (const AttentionRole role : spec.roles()) {
      for (std::size_t layer = 0; layer < spec.stack(role).size(); ++layer) {
        std::vector<std::int64_t> turned(static_cast<std::size_t>(spec.query_heads));
        std::iota(turned.rbegin(), turned.rend(), 0);
        order.set(role, layer, turned);
      }
    }
    // Reordered heads without pooling give the source's outputs.
    for (std::size_t layer = 0; layer < spec.layers.size(); ++layer) {
      AttentionHeads heads =
          read_attention_heads(spec, AttentionRole::kSelf, layer, half.golden.source.checkpoint);
      const std::vector<std::int64_t> queries =
          order.heads(AttentionRole::kSelf, layer, spec.query_heads);
      heads = in_order(heads, order.heads(AttentionRole::kSelf, layer, spec.query_heads));
      CHECK(half.refit()->refine(AttentionRole::kSelf, layer, queries, heads).error_before <
            rounding_error(spec));
      // A wrong order is far more than rounding.
      CHECK(half.refit()
                ->refine(AttentionRole::kSelf, layer, as_they_are(heads), heads)
                .error_before > 1e4 * rounding_error(spec));
    }
  }
}

TEST_CASE("a GGUF file is refitted like the model that it was made from", "[uptrain]") {
  const Halved half("llama_mha");
  convert(golden("llama_mha"), half.directory / "source.gguf",
          {.container = Container::kGguf, .dtype = DType::kF32});
  const Model source = open_model(half.directory / "source.gguf");
  const auto refit = std::make_shared<Refit>(source, half.data, short_settings(), kNeverStopped);
  ConversionRequest request = half.request(PoolMethod::kMean);
  const auto expected = half.convert_to("refitted", request, half.refit());
  const auto convert_to = [&](const char* name) {
    return execute_conversion(plan_conversion(source, request), source, half.directory / name, {},
                              kNeverStopped);
  };
  convert_to("pooled.gguf");
  request.refiner = refit;
  const auto layers = convert_to("refitted.gguf");
  REQUIRE(layers.size() == expected.size());
  // Before training: an error e of outputs that are rounded by r changes by up to 2 r e. After it:
  // AdamW's first steps have the size of the learning rate, however small a gradient is, so that
  // rounding moves weights.
  const double rounding = 2.0 * std::sqrt(rounding_error(source.spec));
  constexpr double kTrained = 1e-2, kTrainedLogits = 0.1;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    CAPTURE(i);
    const RefinementReport& found = layers[i].refinement.value();
    const RefinementReport& known = expected[i].refinement.value();
    CHECK(std::abs(found.error_before - known.error_before) <
          rounding * std::sqrt(known.error_before));
    CHECK(std::abs(found.error_after - known.error_after) < kTrained * known.error_after);
    CHECK(found.error_after < found.error_before);
  }
  CHECK(half.error_of("refitted.gguf") < half.error_of("pooled.gguf"));
  CHECK(std::abs(half.error_of("refitted.gguf") / half.error_of("refitted") - 1.0) <
        kTrainedLogits);
}

TEST_CASE("refitting twice gives the same bytes", "[uptrain]") {
  const Halved half("llama_mha");
  const ConversionRequest request = half.request(PoolMethod::kLowrank);
  half.convert_to("one", request, half.refit());
  half.convert_to("other", request, half.refit());
  CHECK(bytes_of_file(half.directory / "one" / "model.safetensors") ==
        bytes_of_file(half.directory / "other" / "model.safetensors"));
}

TEST_CASE("a refitted model records its settings and differs from the source only in attention",
          "[uptrain]") {
  const Halved half("llama_mha");
  half.convert_to("refitted", half.request(PoolMethod::kMean), half.refit());
  const Model model = open_model(half.directory / "refitted");
  const Json recipe = parse_json_object(model.config_text, "config.json")["regroup"]["refit"];
  CHECK(recipe["steps"] == 40);
  CHECK(recipe["tokens"] == 4096);
  CHECK(recipe["tokens_per_step"] == 128);
  const Checkpoint& source = half.golden.source.checkpoint;
  for (const TensorInfo& tensor : source.tensors()) {
    if (tensor.name.find("self_attn.") == std::string::npos) {
      CAPTURE(tensor.name);
      CHECK(largest_difference(
                read_tensor(half.golden.source.path / "model.safetensors", tensor.name),
                read_tensor(half.directory / "refitted" / "model.safetensors", tensor.name)) ==
            0.0);
    }
  }
}

TEST_CASE("heads that match the source are not changed", "[uptrain]") {
  const Halved half("llama_mha");
  AttentionHeads heads = read_attention_heads(half.golden.source.spec, AttentionRole::kSelf, 0,
                                              half.golden.source.checkpoint);
  const std::vector<double> before = heads.k.weight;
  const RefinementReport report =
      half.refit()->refine(AttentionRole::kSelf, 0, as_they_are(heads), heads);
  CHECK(report.error_before < rounding_error(half.golden.source.spec));
  CHECK(report.error_after == report.error_before);  // training cannot win, so nothing is written
  CHECK((heads.k.weight == before));
}

TEST_CASE("the heads of every model that refits give their attention's outputs", "[uptrain]") {
  std::size_t models = 0, without_rope = 0;
  for (const std::string& name : golden_cases()) {
    CAPTURE(name);
    const Halved same(name.c_str());
    const ModelSpec& spec = same.golden.source.spec;
    if (!can_refit(spec)) {
      continue;
    }
    ++models;
    RefitSettings settings = short_settings();
    settings.windows = {.context = 8, .batch = 2, .max_tokens = 32};
    settings.steps = 1;
    Refit refit(same.golden.source, same.data, settings, kNeverStopped);
    for (const AttentionRole role : {AttentionRole::kEncoder, AttentionRole::kSelf}) {
      for (std::size_t layer = 0; layer < spec.stack(role).size(); ++layer) {
        if (!spec.attention(role, layer).present()) {
          continue;
        }
        CAPTURE(name_of(role), layer);
        without_rope += spec.stack(role)[layer].without_rope ? 1 : 0;
        AttentionHeads heads =
            read_attention_heads(spec, role, layer, same.golden.source.checkpoint);
        CHECK(refit.refine(role, layer, as_they_are(heads), heads).error_before <
              rounding_error(spec));
      }
    }
  }
  CHECK(models > 50);
  CHECK(without_rope > 0);
}

TEST_CASE("a plan refuses to refit without pooling or with new positions", "[uptrain]") {
  const Halved half("llama_mha");
  const auto refusal = [&](ConversionRequest request) {
    request.refiner = half.refit();
    return refusal_of([&] { plan_conversion(half.golden.source, request); });
  };
  CHECK_THAT(refusal({.container = Container::kTorch}),
             is_wrong_usage("--refit", "fewer kv heads"));
  ConversionRequest moved = half.request(PoolMethod::kMean);
  moved.positions = PositionChange::kAlibi;
  CHECK_THAT(refusal(moved), is_wrong_usage("--refit", "positions"));
}

TEST_CASE("impossible refits are refused", "[uptrain]") {
  const Halved half("llama_mha");
  const auto run = [&](const Model& source, RefitSettings settings) {
    return refusal_of([&] { Refit(source, half.data, settings, kNeverStopped); });
  };
  RefitSettings settings = short_settings();
  settings.windows.batch = 256;
  CHECK_THAT(run(half.golden.source, settings), is_bad_input("tokens", "two"));
  settings = short_settings();
  settings.steps = 0;
  CHECK_THAT(run(half.golden.source, settings), is_wrong_usage("step"));
  CHECK_THAT(run(load_golden_case("stablelm_qk").source, short_settings()),
             is_wrong_usage("normalises keys"));
  SECTION("stops on request") {
    const std::atomic<bool> stop{true};
    Refit refit(half.golden.source, half.data, short_settings(), stop);
    AttentionHeads heads = read_attention_heads(half.golden.source.spec, AttentionRole::kSelf, 0,
                                                half.golden.source.checkpoint);
    CHECK_THROWS_AS(refit.refine(AttentionRole::kSelf, 0, as_they_are(heads), heads), Error);
  }
}

}  // namespace regroup
