#include "uptrain/uptrain_settings.h"

#include <cmath>

#include <catch2/catch_test_macros.hpp>

#include "tests/file_tree.h"
#include "tests/refusal.h"
#include "tests/temporary_directory.h"
#include "tests/uptrain/token_text.h"
#include "uptrain/uptrain_plan.h"

namespace regroup {
namespace {

UptrainPlan plan_of(const UptrainSettings& settings) {
  const Model source = open_computable_model(settings.model);
  return plan_uptraining(settings, source, open_training_data(settings, source.spec));
}

}  // namespace

TEST_CASE("a fraction of the pretraining is rounded up, but not for rounding errors", "[uptrain]") {
  CHECK(fraction_of(0.05, 1000) == 50);  // 0.05 * 1000 in doubles is a little more than 50
  CHECK(fraction_of(0.05, 1001) == 51);
  CHECK(fraction_of(0.1, 3) == 1);
  CHECK(fraction_of(0.07, 100) == 7);   // 7.000000000000001
  CHECK(fraction_of(0.29, 100) == 29);  // 28.999999999999996
  CHECK(fraction_of(0.05, 500000) == 25000);
  CHECK(fraction_of(1e-9, 10) == 1);
  CHECK(fraction_of(1.0, 1'000'000'007) == 1'000'000'007);
  for (std::int64_t percent = 1; percent <= 100; ++percent) {
    for (std::int64_t total = 100; total <= 100'000; total *= 10) {
      CHECK(fraction_of(static_cast<double>(percent) / 100, total) == percent * total / 100);
    }
  }
}

TEST_CASE("steps follow from tokens by way of the tokens in a step", "[uptrain]") {
  const TemporaryDirectory directory;
  UptrainSettings settings = short_run(directory.path(), "llama_mha", 1);
  settings.steps.reset();
  settings.alpha = 0.05;
  settings.pretrain_tokens = 72 * 1000;  // 3 sequences of 12, twice
  CHECK(plan_of(settings).steps == 50);
  settings.pretrain_tokens = 72 * 1000 + 20;  // one token more than 50 steps have
  CHECK(plan_of(settings).steps == 51);
}

TEST_CASE("a plan counts parameters, operations and passes over the data", "[uptrain]") {
  const TemporaryDirectory directory;
  UptrainSettings settings = short_run(directory.path(), "gpt2", 10);
  const UptrainPlan plan = plan_of(settings);
  // GPT-2, L = 2, D = 36, V = 64, 16 positions, MLP of 4·D.
  const std::int64_t layer = 4 * 36 * 36 + 4 * 36 + 8 * 36 * 36 + 5 * 36 + 4 * 36;
  const std::int64_t parameters = (64 + 16) * 36 + 2 * layer + 2 * 36;
  CHECK(plan.parameters == parameters);
  CHECK(plan.tokens == 10 * 72);
  const auto per_token = static_cast<double>(6 * (parameters - 16 * 36) + 6 * 2 * 36 * 12);
  CHECK(plan.flops == per_token * 720);
  CHECK(plan.epochs == 60.0 / 166.0);  // 2000 tokens hold 166 windows
}

TEST_CASE("layers that lack attention or MLP count for what they have", "[uptrain]") {
  const ModelSpec spec = open_model(golden("nemotron_nas")).spec;
  // D = 24, 6 heads of 4, V = 48, untied; kv heads 6, -, 2, -, 3; MLPs of 256, 512, -, -, -.
  const std::int64_t attention = 3 * (24 + 2 * 24 * 24) + 2 * (6 + 2 + 3) * 4 * 24;
  const std::int64_t mlps = 2 * 24 + 3 * 24 * (256 + 512);
  const std::int64_t parameters = attention + mlps + 2 * 48 * 24 + 24;
  CHECK(count_parameters(spec) == parameters);
  CHECK(training_flops_per_token(spec, 12) ==
        static_cast<double>(6 * (parameters - 48 * 24) + 6 * 3 * 24 * 12));
}

TEST_CASE("an output inside the model's directory is refused before training", "[uptrain]") {
  const TemporaryDirectory directory;
  UptrainSettings settings = short_run(directory.path(), "gpt2", 10);
  settings.output = settings.model / "uptrained";
  CHECK_THAT(refusal_of([&] { plan_of(settings); }), is_wrong_usage("lies inside the source"));
}

TEST_CASE("settings report all their faults together", "[uptrain]") {
  UptrainSettings settings;
  settings.alpha = 0.0;
  settings.batch = 0;
  settings.learning_rate = std::nan("");
  settings.min_learning_rate_ratio = 1.5;
  settings.eval_every = 5;
  CHECK_THAT(refusal_of([&] { settings.validate(); }),
             is_wrong_usage("alpha is 0", "pretraining", "no training data", "no output",
                            "batch is 0", "learning rate", "ratio is 1.5", "evaluation data"));
}

TEST_CASE("a number of steps excludes a fraction of the pretraining", "[uptrain]") {
  const TemporaryDirectory directory;
  UptrainSettings settings = short_run(directory.path(), "llama_mha", 5);
  CHECK_NOTHROW(settings.validate());
  settings.alpha = 0.05;
  CHECK_THAT(refusal_of([&] { settings.validate(); }), is_wrong_usage("steps excludes alpha"));
}

TEST_CASE("sequences longer than a model's learned positions are refused", "[uptrain]") {
  const TemporaryDirectory directory;
  UptrainSettings settings = short_run(directory.path(), "gpt2", 5);
  settings.sequence_length = 17;
  CHECK_THAT(refusal_of([&] { plan_of(settings); }), is_wrong_usage("17", "16"));
  settings.sequence_length.reset();
  CHECK(plan_of(settings).sequence_length == 16);
}

}  // namespace regroup
