// The effect of pooling one layer, compared with converting that layer and running both models; and
// `regroup convert --kv-budget`.
#include "uptrain/train/sensitivity.h"

#include <cmath>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/log_softmax.h>
#include <catch2/catch_test_macros.hpp>

#include "converter/convert/execute_plan.h"
#include "converter/convert/similar_grouping.h"
#include "tests/child_program.h"
#include "tests/converter/conversion.h"
#include "tests/file_tree.h"
#include "tests/refusal.h"
#include "tests/temporary_directory.h"
#include "tests/tiny_models.h"
#include "tests/uptrain/golden_case.h"
#include "tests/uptrain/never_stopped.h"
#include "tests/uptrain/token_text.h"

namespace regroup {
namespace {

at::Tensor log_probabilities(const Model& model, const at::Tensor& tokens) {
  const Transformer transformer = load_transformer(model, at::kFloat, at::kCPU);
  return at::log_softmax(transformer.logits(transformer.hidden_states(tokens)).to(at::kDouble), -1);
}

// The KL divergence after one layer is converted by convert().
double divergence_of_converted(const GoldenCase& golden, const ConversionRequest& request,
                               std::size_t layer, std::int64_t kv_heads) {
  const TemporaryDirectory directory;
  ConversionRequest one = request;
  one.kv_heads = golden.source.spec.kv_heads;
  one.kv_heads[layer] = kv_heads;
  if (request.grouping == "similar") {
    one.order = find_similar_grouping(plan_conversion(golden.source, one), golden.source.checkpoint,
                                      {}, kNeverStopped)
                    .order;
  }
  execute_conversion(plan_conversion(golden.source, one), golden.source, directory / "one", {},
                     kNeverStopped);
  const at::Tensor before = log_probabilities(golden.source, golden.tokens);
  const at::Tensor after = log_probabilities(open_model(directory / "one"), golden.tokens);
  return (before.exp() * (before - after)).sum(-1).mean().item<double>();
}

std::vector<Sensitivity> measure(const GoldenCase& golden, const ConversionRequest& request,
                                 const TemporaryDirectory& directory,
                                 at::ScalarType type = at::kFloat) {
  const at::Tensor flat = golden.tokens.flatten().contiguous();
  const auto* ids = flat.const_data_ptr<std::int64_t>();
  put_file(directory / "tokens",
           bytes_of_numbers(std::vector<std::uint16_t>(ids, ids + flat.numel())));
  const WindowSettings windows{
      .context = golden.tokens.size(1), .batch = 1, .max_tokens = flat.numel()};
  return measure_sensitivity(golden.source, request, TokenFile::open(directory / "tokens"), windows,
                             at::kCPU, {}, kNeverStopped, type);
}

}  // namespace

TEST_CASE("a layer's sensitivity equals the divergence after converting it alone", "[uptrain]") {
  const at::NoGradGuard no_gradients;
  for (const char* name : {"llama_mha", "bloom", "gpt2", "gpt_neox", "opt_350m"}) {
    for (const char* grouping : {"contiguous", "similar"}) {
      const TemporaryDirectory directory;
      const GoldenCase golden = load_golden_case(name);
      ConversionRequest request;
      request.pooling = {PoolMethod::kLowrank, 0};
      request.grouping = grouping;
      const std::vector<Sensitivity> measured = measure(golden, request, directory);
      CAPTURE(name, grouping);
      REQUIRE(measured.size() >= golden.source.spec.layers.size());
      for (const Sensitivity& one : {measured.front(), measured.back()}) {
        CAPTURE(one.layer, one.kv_heads);
        const double expected = divergence_of_converted(golden, request, one.layer, one.kv_heads);
        REQUIRE(expected > 1e-6);
        // The converted weights were rounded to fp32 once more.
        CHECK(std::abs(one.divergence / expected - 1.0) < 1e-2);
      }
    }
  }
}

TEST_CASE("layers measured in bf16 lose what they lose in fp32, and rounding", "[uptrain]") {
  for (const char* name : {"llama_mha", "gemma2", "mixtral", "bloom"}) {
    const TemporaryDirectory directory;
    const GoldenCase golden = load_golden_case(name);
    const std::vector<Sensitivity> wide = measure(golden, {}, directory);
    const std::vector<Sensitivity> narrow = measure(golden, {}, directory, at::kBFloat16);
    REQUIRE(wide.size() == narrow.size());
    for (std::size_t i = 0; i < wide.size(); ++i) {
      CAPTURE(name, wide[i].layer, wide[i].kv_heads);
      CHECK(std::abs(narrow[i].divergence - wide[i].divergence) < 0.1 * wide[i].divergence + 2e-3);
    }
  }
}

TEST_CASE("layers are measured with the source's positions", "[uptrain]") {
  const TemporaryDirectory directory;
  const GoldenCase golden = load_golden_case("llama_mha");
  ConversionRequest request;
  request.pooling = {PoolMethod::kLowrank, 0};
  const std::vector<Sensitivity> kept = measure(golden, request, directory);
  request.positions = PositionChange::kAlibi;
  const std::vector<Sensitivity> changed = measure(golden, request, directory);
  REQUIRE(kept.size() == changed.size());
  for (std::size_t i = 0; i < kept.size(); ++i) {
    CHECK(kept[i].divergence == changed[i].divergence);
  }
}

TEST_CASE("measuring stops on request", "[uptrain]") {
  const TemporaryDirectory directory;
  const GoldenCase golden = load_golden_case("llama_mha");
  put_file(directory / "tokens", bytes_of_numbers(learnable_text(400, 30)));
  std::atomic<bool> stop{false};
  const auto stopped_by_progress = [&] {
    measure_sensitivity(
        golden.source, {}, TokenFile::open(directory / "tokens"), {16, 1, 64}, at::kCPU,
        [&](std::size_t) { stop = true; }, stop);
  };
  CHECK(refusal_of(stopped_by_progress).kind() == ErrorKind::kInterrupted);
}

TEST_CASE("a budget for a model with an encoder is refused", "[uptrain]") {
  const TemporaryDirectory directory;
  const GoldenCase golden = load_golden_case("t5");
  CHECK_THAT(refusal_of([&] { measure(golden, {}, directory); }),
             is_wrong_usage("--kv-budget", "encoder"));
}

TEST_CASE("convert --kv-budget shares a cache among layers and reports how", "[uptrain]") {
  const TemporaryDirectory directory;
  const std::string source = golden("llama_mha").string();
  put_file(directory / "tokens", bytes_of_numbers(learnable_text(400, 30)));
  const auto convert = [&](const char* output, const std::vector<std::string>& more) {
    std::vector<std::string> arguments{"convert",         source, (directory / output).string(),
                                       "--refit-context", "16",   "--allow-any-text"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_program(arguments);
  };
  const std::string data = (directory / "tokens").string();
  const ProgramResult half =
      convert("half", {"--kv-budget", "50%", "--kv-budget-data", data, "--json"});
  CAPTURE(half.err);
  REQUIRE(half.exit_code == 0);
  const auto budget = half.json()["kv_budget"];
  CHECK(budget["bytes_per_token"] <= budget["budget_bytes_per_token"]);
  CHECK(budget["budget_bytes_per_token"].get<int>() * 2 == budget["source_bytes_per_token"]);
  CHECK(half.json()["kv_bytes_per_token_after"] == budget["bytes_per_token"]);
  CHECK(budget["divergence"] <= budget["uniform"]["divergence"]);
  const Json in_bf16 = convert("bf16", {"--kv-budget", "200B", "--kv-budget-data", data, "--dtype",
                                        "bf16", "--json"})
                           .json();
  CHECK(in_bf16["kv_bytes_per_token_after"] == in_bf16["kv_budget"]["bytes_per_token"]);
  CHECK(in_bf16["kv_bytes_per_token_before"].get<int>() ==
        2 * in_bf16["kv_budget"]["source_bytes_per_token"].get<int>());
  const ProgramResult table =
      convert("table", {"--kv-budget", "50%", "--kv-budget-data", data, "--dry-run"});
  CHECK(table.out.find("KL by itself") != std::string::npos);
  CHECK(table.err.find("measures the layers first") != std::string::npos);

  CHECK(convert("a", {"--kv-budget", "50%"}).err.find("--kv-budget-data") != std::string::npos);
  CHECK(convert("b", {"--kv-budget", "1B", "--kv-budget-data", data}).err.find("fewest kv heads") !=
        std::string::npos);
  CHECK(convert("c", {"--kv-budget", "25", "--kv-budget-data", data}).err.find("is 25%") !=
        std::string::npos);
  CHECK(convert("c", {"--kv-budget", "x", "--kv-budget-data", data}).exit_code == 2);
  CHECK(
      convert("d", {"--kv-budget", "50%", "--kv-heads", "2", "--kv-budget-data", data}).exit_code ==
      2);
}

}  // namespace regroup
