// The layer-by-layer measurement against evaluate(), which runs whole models.
#include "uptrain/train/text_quality.h"

#include <cmath>
#include <vector>

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>

#include "formats/base/json.h"
#include "tests/converter/conversion.h"
#include "tests/file_tree.h"
#include "tests/refusal.h"
#include "tests/temporary_directory.h"
#include "tests/uptrain/golden_case.h"
#include "tests/uptrain/never_stopped.h"
#include "tests/uptrain/token_text.h"
#include "uptrain/train/evaluate.h"

namespace regroup {
namespace {

constexpr WindowRange kWholeText{.first = 0, .windows = 12, .context = 16, .batch = 5};

TokenFile text_for(const Model& model, const std::filesystem::path& path) {
  const auto vocabulary = static_cast<std::uint16_t>(model.spec.vocab_size);
  put_file(path, bytes_of_numbers(learnable_text(12 * 16 + 1, vocabulary)));
  return TokenFile::open(path);
}

double evaluated_loss(const Model& model, const TokenFile& text, at::ScalarType type = at::kFloat) {
  EvaluationSettings settings;
  settings.context = 16;
  settings.task = with_special_tokens({}, model);
  return evaluate(load_transformer(model, type, at::kCPU), text, settings, {}, kNeverStopped).loss;
}

}  // namespace

TEST_CASE("the loss on a text is that of evaluate for source, plan and result", "[uptrain]") {
  for (const char* name : {"llama_mha", "bloom", "gpt2", "bert", "t5", "gpt_neox", "smollm3",
                           "olmo2", "olmo3", "olmoe"}) {
    CAPTURE(name);
    const TemporaryDirectory directory;
    std::filesystem::copy(golden(name), directory / "source");
    if (std::string_view(name) == "bert") {
      Json config = Json::parse(bytes_of_file(directory / "source" / "config.json"));
      config["mask_token_id"] = 3;
      put_file(directory / "source" / "config.json", config.dump());
    }
    const Model source = open_model(directory / "source");
    const TokenFile text = text_for(source, directory / "text");
    ConversionRequest request;
    request.kv_heads = {1};
    request.dtype = DType::kF32;
    const ConversionPlan plan = plan_conversion(source, request);
    convert(source.path, directory / "mean", request);
    const Model result = open_model(directory / "mean");
    const TextQualityMeter meter(source, text, kWholeText, at::kCPU, kNeverStopped);
    const auto matches = [](double loss) { return Catch::Matchers::WithinRel(loss, 1e-5); };
    CHECK_THAT(meter.of_source().loss.value(), matches(evaluated_loss(source, text)));
    CHECK_THAT(meter.of(plan).loss.value(), matches(evaluated_loss(result, text)));
    CHECK_THAT(meter.of(result).loss.value(), matches(evaluated_loss(result, text)));
    CHECK(meter.of(source).cosine == Catch::Approx(1.0));
    CHECK(meter.of(result).cosine < 0.9999);
    CHECK(meter.of(result).cosine == Catch::Approx(meter.of(plan).cosine).epsilon(1e-4));
  }
}

TEST_CASE("every model is measured layer by layer in bf16 as it computes in bf16", "[uptrain]") {
  std::size_t models = 0;
  for (const std::string& name : golden_cases()) {
    CAPTURE(name);
    const TemporaryDirectory directory;
    const Model source = open_model(golden(name));
    const TokenFile text = text_for(source, directory / "text");
    const TextQualityMeter meter(source, text, kWholeText, at::kCPU, kNeverStopped, {},
                                 at::kBFloat16);
    CHECK(meter.of(source).cosine == Catch::Approx(1.0).epsilon(1e-3));
    if (const auto loss = meter.of_source().loss) {
      ++models;
      CHECK_THAT(*loss,
                 Catch::Matchers::WithinRel(evaluated_loss(source, text, at::kBFloat16), 2e-3));
      CHECK_THAT(*loss, Catch::Matchers::WithinRel(evaluated_loss(source, text), 2e-2));
    }
  }
  CHECK(models > 50);
}

TEST_CASE("a model that cannot predict has no loss but a cosine", "[uptrain]") {
  const TemporaryDirectory directory;
  const char* name = GENERATE("bert_base", "bert");  // the last has no mask token
  CAPTURE(name);
  const Model source = load_golden_case(name).source;
  const TokenFile text = text_for(source, directory / "text");
  ConversionRequest request;
  request.kv_heads = {1};
  const TextQualityMeter meter(source, text, kWholeText, at::kCPU, kNeverStopped);
  const TextQuality quality = meter.of(plan_conversion(source, request));
  CHECK(!quality.loss);
  CHECK(quality.cosine < 0.9999);
  CHECK(meter.predicted_tokens() == 0);
}

TEST_CASE("a text that ends too soon or has other tokens is refused", "[uptrain]") {
  const TemporaryDirectory directory;
  const Model source = load_golden_case("llama_mha").source;
  const TokenFile text = text_for(source, directory / "text");
  WindowRange beyond = kWholeText;
  beyond.first = 16;
  CHECK_THAT(refusal_of([&] { TextQualityMeter(source, text, beyond, at::kCPU, kNeverStopped); }),
             is_bad_input("text"));
  put_file(directory / "large", bytes_of_numbers(std::vector<std::uint16_t>(256, 64)));
  const TokenFile large = TokenFile::open(directory / "large");
  CHECK_THAT(
      refusal_of([&] { TextQualityMeter(source, large, kWholeText, at::kCPU, kNeverStopped); }),
      is_bad_input("large", "64"));
}

TEST_CASE("the entropy of a text's token frequencies is theirs", "[uptrain]") {
  const TemporaryDirectory directory;
  std::vector<std::uint16_t> ids(1000, 7);
  put_file(directory / "one", bytes_of_numbers(ids));
  CHECK(entropy_of_frequencies(TokenFile::open(directory / "one")) == 0.0);
  for (std::size_t i = 0; i < ids.size(); i += 4) {
    ids[i] = 8;  // a quarter
  }
  put_file(directory / "two", bytes_of_numbers(ids));
  const double entropy = -(0.25 * std::log(0.25) + 0.75 * std::log(0.75)) + 1.0 / 2000;
  CHECK_THAT(entropy_of_frequencies(TokenFile::open(directory / "two")),
             Catch::Matchers::WithinRel(entropy, 1e-12));
}

TEST_CASE("a model is compared with chance only if it predicts the next token", "[uptrain]") {
  const TemporaryDirectory directory;
  const auto compare = [&](const char* name) {
    const Model model = open_model(golden(name));
    return compare_with_chance(model, text_for(model, directory / name), 16, at::kCPU,
                               kNeverStopped);
  };
  CHECK_FALSE(compare("bert"));
  CHECK_FALSE(compare("t5"));
  const auto found = compare("llama_mha");
  REQUIRE(found);
  const Model model = open_model(golden("llama_mha"));
  CHECK(found->tokens == 12 * 16);
  CHECK_THAT(found->loss,
             Catch::Matchers::WithinRel(
                 evaluated_loss(model, TokenFile::open(directory / "llama_mha")), 1e-5));
  CHECK(found->uniform == std::log(static_cast<double>(model.spec.vocab_size)));
  CHECK_FALSE(found->better_than_chance());  // random weights
  CHECK(TextChance{.loss = 2.0, .uniform = 4.0, .frequencies = 3.0}.better_than_chance());
  CHECK_FALSE(TextChance{.loss = 3.0, .uniform = 4.0, .frequencies = 3.0}.better_than_chance());
  CHECK_FALSE(TextChance{.loss = 4.5, .uniform = 4.0, .frequencies = 5.0}.better_than_chance());
}

}  // namespace regroup
