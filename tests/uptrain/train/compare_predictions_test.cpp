// The difference of two models' predictions, compared with whole passes and an explicit sum; and
// `regroup verify --logits`.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "tests/child_program.h"
#include "tests/converter/conversion.h"
#include "tests/file_tree.h"
#include "tests/refusal.h"
#include "tests/temporary_directory.h"
#include "tests/tiny_models.h"
#include "tests/uptrain/golden_case.h"
#include "tests/uptrain/never_stopped.h"
#include "tests/uptrain/token_text.h"
#include "uptrain/train/objective.h"
#include "uptrain/train/text_quality.h"

namespace regroup {
namespace {

namespace fs = std::filesystem;
using Catch::Matchers::ContainsSubstring;

PredictionComparison compare(const Model& source, const Model& result, const at::Tensor& tokens) {
  return compare_predictions(source, result, {tokens}, c10::kCPU, {}, kNeverStopped);
}

// log p of every token of the vocabulary, for one prediction with V logits at `logits`.
std::vector<double> log_probabilities(const double* logits, std::int64_t vocab) {
  double sum = 0.0;
  for (std::int64_t i = 0; i < vocab; ++i) {
    sum += std::exp(logits[i]);
  }
  std::vector<double> result;
  for (std::int64_t i = 0; i < vocab; ++i) {
    result.push_back(logits[i] - std::log(sum));
  }
  return result;
}

// What compare_predictions() measures, computed from whole passes of both models.
PredictionComparison by_hand(const Model& source, const Model& result, const at::Tensor& tokens) {
  const auto logits_of = [&](const Model& model) {
    return window_logits(load_transformer(model, at::kFloat, c10::kCPU), tokens)
        .to(at::kDouble)
        .contiguous();
  };
  const at::Tensor expected = logits_of(source), found = logits_of(result);
  const std::int64_t vocab = expected.size(-1);
  PredictionComparison sum;
  sum.tokens = expected.numel() / vocab;
  for (std::int64_t token = 0; token < sum.tokens; ++token) {
    const double* a = expected.const_data_ptr<double>() + token * vocab;
    const double* b = found.const_data_ptr<double>() + token * vocab;
    const std::vector<double> log_a = log_probabilities(a, vocab),
                              log_b = log_probabilities(b, vocab);
    double kl = 0.0;
    for (std::int64_t i = 0; i < vocab; ++i) {
      kl += std::exp(log_a[i]) * (log_a[i] - log_b[i]);
      sum.mean_difference += std::abs(a[i] - b[i]) / static_cast<double>(vocab * sum.tokens);
      sum.largest_difference = std::max(sum.largest_difference, std::abs(a[i] - b[i]));
      sum.largest_logit = std::max(sum.largest_logit, std::abs(a[i]));
    }
    sum.kl += kl / static_cast<double>(sum.tokens);
    sum.largest_kl = std::max(sum.largest_kl, kl);
    const bool same = std::max_element(a, a + vocab) - a == std::max_element(b, b + vocab) - b;
    sum.agreement += same ? 1.0 / static_cast<double>(sum.tokens) : 0.0;
  }
  return sum;
}

bool close(double a, double b) { return std::abs(a - b) <= 1e-4 * (std::abs(b) + 1e-2); }

TEST_CASE("the comparison equals one computed from whole passes", "[uptrain]") {
  const at::NoGradGuard no_gradients;
  for (const char* name : {"llama_mha", "bloom", "gpt2", "opt_350m", "bert", "t5", "mt5", "bart",
                           "mbart", "marian", "pegasus"}) {
    CAPTURE(name);
    const TemporaryDirectory directory;
    const GoldenCase subject = load_golden_case(name);
    convert(golden(name), directory / "result", {.kv_heads = {1}});
    const Model result = open_model(directory / "result");
    const PredictionComparison found = compare(subject.source, result, subject.tokens);
    const PredictionComparison expected = by_hand(subject.source, result, subject.tokens);
    CHECK(found.tokens == expected.tokens);
    CHECK(expected.kl > 1e-3);
    CHECK(close(found.kl, expected.kl));
    CHECK(close(found.largest_kl, expected.largest_kl));
    CHECK(close(found.mean_difference, expected.mean_difference));
    CHECK(close(found.largest_difference, expected.largest_difference));
    CHECK(close(found.largest_logit, expected.largest_logit));
    CHECK(close(found.agreement, expected.agreement));
  }
}

TEST_CASE("copies and models with repeated heads predict the same as their source", "[uptrain]") {
  const TemporaryDirectory directory;
  const GoldenCase subject = load_golden_case("llama");  // with three query heads per kv head
  convert(golden("llama"), directory / "copy", {.kv_heads = subject.source.spec.kv_heads});
  const PredictionComparison same =
      compare(subject.source, open_model(directory / "copy"), subject.tokens);
  CHECK(same.kl == 0.0);
  CHECK(same.largest_difference == 0.0);
  CHECK(same.agreement == 1.0);
  const fs::path expanded = directory / "expanded";
  REQUIRE(run_program({"expand", golden("llama").string(), expanded.string(), "--kv-heads", "12"})
              .exit_code == 0);
  const Model stored_twice = open_model(expanded);
  REQUIRE(stored_twice.spec.kv_heads.front() == subject.source.spec.query_heads);
  const PredictionComparison twice = compare(subject.source, stored_twice, subject.tokens);
  CHECK(std::abs(twice.largest_kl) < 1e-10);
  CHECK(twice.largest_difference < 1e-5);
  CHECK(twice.agreement == 1.0);
}

// Adds `change` to one element of a tensor of a model.
void damage(const fs::path& model, const std::string& tensor, float change) {
  const Checkpoint checkpoint = open_checkpoint(model);
  std::string file = bytes_of_file(model / "model.safetensors");
  float number = 0.0F;
  char* at = file.data() + checkpoint.at(tensor).begin;
  std::memcpy(&number, at, sizeof(number));
  number += change;
  std::memcpy(at, &number, sizeof(number));
  put_file(model / "model.safetensors", file);
}

TEST_CASE("one changed weight is detected and NaN is refused", "[uptrain]") {
  const TemporaryDirectory directory;
  const GoldenCase subject = load_golden_case("llama");
  fs::copy(golden("llama"), directory / "model");
  damage(directory / "model", "model.layers.1.self_attn.v_proj.weight", 0.5F);
  const PredictionComparison damaged =
      compare(subject.source, open_model(directory / "model"), subject.tokens);
  CHECK(damaged.kl > 1e-6);
  CHECK(damaged.largest_difference > 1e-3);
  damage(directory / "model", "model.layers.1.self_attn.v_proj.weight",
         std::numeric_limits<float>::quiet_NaN());
  CHECK_THAT(
      refusal_of([&] { compare(subject.source, open_model(directory / "model"), subject.tokens); }),
      is_bad_input("model.layers.1.self_attn.v_proj.weight", "NaN"));
}

TEST_CASE("models with different vocabularies are refused and comparing stops on request",
          "[uptrain]") {
  const GoldenCase subject = load_golden_case("llama");
  CHECK_THAT(refusal_of([&] { compare(subject.source, open_model(golden("t5")), subject.tokens); }),
             is_bad_input("t5", "a vocabulary of"));
  const std::atomic<bool> stop{true};
  CHECK(refusal_of([&] {
          compare_predictions(subject.source, subject.source, {subject.tokens}, c10::kCPU, {},
                              stop);
        }).kind() == ErrorKind::kInterrupted);
}

TEST_CASE("verify --logits compares on a file of tokens or on random tokens", "[uptrain]") {
  const TemporaryDirectory directory;
  const std::string source = golden("llama_mha").string();
  const fs::path result = directory / "result";
  convert(source, result, {.kv_heads = {2}});
  put_file(directory / "tokens", bytes_of_numbers(learnable_text(400, 60)));
  const auto verify = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"verify", source, result.string(), "--quiet", "--threads", "1"});
    return run_program(more);
  };
  const ProgramResult of_text = verify({"--json", "--context", "20", "--max-tokens", "40",
                                        "--logits", "--data", directory / "tokens"});
  CAPTURE(of_text.err);
  REQUIRE(of_text.exit_code == 0);
  const Json logits = of_text.json()["logits"];
  CHECK(logits["data"] == (directory / "tokens").string());
  CHECK(logits["tokens"] == 40);
  CHECK(logits["context"] == 20);
  const at::Tensor tokens = read_windows(TokenFile::open(directory / "tokens"), {20, 2, 40})[0];
  const PredictionComparison expected = by_hand(open_model(source), open_model(result), tokens);
  CHECK(close(logits["kl"], expected.kl));
  CHECK(close(logits["agreement"], expected.agreement));

  const ProgramResult random = verify({"--max-tokens", "30", "--context", "30", "--logits"});
  CHECK(random.exit_code == 0);
  CHECK_THAT(random.out, ContainsSubstring("30 random tokens in windows of 30") &&
                             ContainsSubstring("nats (source || result)") &&
                             ContainsSubstring("same first choice"));
  CHECK(verify({"--max-tokens", "30", "--logits"}).out ==
        verify({"--max-tokens", "30", "--logits"}).out);
  CHECK(run_program({"verify", source, result.string(), "--json"}).json().contains("logits") ==
        false);
  const fs::path page = directory / "page.html";
  CHECK(verify({"--max-tokens", "30", "--html", page.string(), "--logits"}).exit_code == 0);
  CHECK_THAT(bytes_of_file(page), ContainsSubstring("same first choice"));
}

TEST_CASE("verify --logits reports the effect of damage and says what it cannot run", "[uptrain]") {
  const TemporaryDirectory directory;
  const std::string source = golden("llama_mha").string();
  const fs::path result = directory / "result";
  convert(source, result, {.kv_heads = {6}});
  damage(result, "model.layers.0.self_attn.k_proj.weight", 2.0F);
  const auto verify = [&] {
    return run_program({"verify", source, result.string(), "--logits", "--json"});
  };
  const ProgramResult damaged = verify();
  CHECK(damaged.exit_code == 5);
  CHECK(damaged.json()["logits"]["largest_difference"] > 1e-4);

  TinyModel incomplete = golden_model("llama_mha");
  incomplete.config = bytes_of_file(result / "config.json");
  incomplete.remove("model.norm.weight");
  put_model(directory / "incomplete", incomplete);
  fs::copy_file(directory / "incomplete" / "model.safetensors", result / "model.safetensors",
                fs::copy_options::overwrite_existing);
  const ProgramResult broken = verify();
  CHECK(broken.exit_code == 5);
  CHECK(broken.json()["logits"].is_null());
  CHECK_THAT(broken.err, ContainsSubstring("note: logits were not compared: ") &&
                             ContainsSubstring("model.norm.weight"));
}

}  // namespace
}  // namespace regroup
