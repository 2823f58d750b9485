#include "uptrain/train/uptrain_settings.h"

#include <cmath>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "tests/file_tree.h"
#include "tests/refusal.h"
#include "tests/temporary_directory.h"
#include "tests/uptrain/token_text.h"
#include "uptrain/run/uptrain_plan.h"
#include "uptrain/train/metrics.h"

namespace regroup {
namespace {

using Catch::Matchers::ContainsSubstring;

UptrainPlan plan_of(const UptrainSettings& settings) {
  const Model source = open_computable_model(settings.model);
  return plan_uptraining(settings, source, open_training_data(settings, source.spec));
}

}  // namespace

TEST_CASE("a fraction of the pretraining rounds up except for rounding errors", "[uptrain]") {
  CHECK(fraction_of(0.05, 1000) == 50);  // 0.05 * 1000 in doubles is slightly more than 50
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

TEST_CASE("steps follow from the tokens and the tokens per step", "[uptrain]") {
  const TemporaryDirectory directory;
  UptrainSettings settings = short_run(directory.path(), "llama_mha", 1);
  settings.steps.reset();
  settings.alpha = 0.05;
  settings.pretrain_tokens = 72 * 1000;  // a step has 2 · 3 sequences of 12 tokens
  CHECK(plan_of(settings).schedule.steps == 50);
  settings.pretrain_tokens = 72 * 1000 + 20;  // one token more than 50 steps have
  CHECK(plan_of(settings).schedule.steps == 51);
}

TEST_CASE("a plan counts parameters and operations and passes over the data", "[uptrain]") {
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
  CHECK_FALSE(plan.evaluations.has_value());
}

TEST_CASE("a plan says what evaluations cost", "[uptrain]") {
  const TemporaryDirectory directory;
  UptrainSettings settings = short_run(directory.path(), "gpt2", 10);
  settings.eval_data = settings.data.front();
  const auto planned = [&] { return plan_of(settings).evaluations.value(); };
  CHECK(planned().count == 2);          // before and after
  CHECK(planned().tokens == 166 * 12);  // all windows
  CHECK(planned().flops == plan_of(settings).flops / 720 / 3 * 2 * 166 * 12);
  settings.eval_max_tokens = 100;
  settings.eval_every = 4;
  CHECK(planned().count == 4);  // before, after 4, 8 and 10
  CHECK(planned().tokens == 100);
  settings.eval_every = 5;
  CHECK(planned().count == 3);
  settings.eval_data = directory / "none";
  CHECK_FALSE(plan_of(settings).evaluations.has_value());  // the run refuses it
}

TEST_CASE("a plan says that a text is read several times unless other text is measured",
          "[uptrain]") {
  const TemporaryDirectory directory;
  const auto notes = [&](std::int64_t steps, TrainedWeights trained, bool measured) {
    UptrainSettings settings = short_run(directory.path(), "gpt2", steps);
    settings.trained = trained;
    if (measured) {
      settings.eval_data = settings.data.front();
    }
    std::string text;
    for (const std::string& note : plan_of(settings).notes) {
      text += note + "\n";
    }
    return text;
  };
  // A step reads 6 of 166 windows.
  CHECK_THAT(notes(56, TrainedWeights::kAll, false),
             ContainsSubstring("2.0 times") && ContainsSubstring("--train attention"));
  CHECK_THAT(notes(83, TrainedWeights::kAttention, false),
             ContainsSubstring("3.0 times") && !ContainsSubstring("--train attention"));
  CHECK_THAT(notes(55, TrainedWeights::kAll, false), !ContainsSubstring("memorises"));
  CHECK_THAT(notes(83, TrainedWeights::kAll, true), !ContainsSubstring("memorises"));
}

TEST_CASE("a plan counts layers without attention or MLP correctly", "[uptrain]") {
  const ModelSpec spec = open_model(golden("nemotron_nas")).spec;
  // D = 24, 6 heads of 4, V = 48, untied; kv heads 6, -, 2, -, 3; MLPs of 256, 512, -, -, -.
  const std::int64_t attention = 3 * (24 + 2 * 24 * 24) + 2 * (6 + 2 + 3) * 4 * 24;
  const std::int64_t mlps = 2 * 24 + 3 * 24 * (256 + 512);
  const std::int64_t parameters = attention + mlps + 2 * 48 * 24 + 24;
  CHECK(count_parameters(spec) == parameters);
  CHECK(training_flops_per_token(spec, Task{}, 12) ==
        static_cast<double>(6 * (parameters - 48 * 24) + 6 * 3 * 24 * 12));
}

TEST_CASE("an output inside the model's directory is refused before training", "[uptrain]") {
  const TemporaryDirectory directory;
  UptrainSettings settings = short_run(directory.path(), "gpt2", 10);
  settings.output = settings.model / "uptrained";
  CHECK_THAT(refusal_of([&] { plan_of(settings); }), is_wrong_usage("lies inside the source"));
}

TEST_CASE("all invalid settings are reported together", "[uptrain]") {
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

TEST_CASE("steps and alpha exclude each other", "[uptrain]") {
  const TemporaryDirectory directory;
  UptrainSettings settings = short_run(directory.path(), "llama_mha", 5);
  CHECK_NOTHROW(settings.validate());
  settings.alpha = 0.05;
  CHECK_THAT(refusal_of([&] { settings.validate(); }),
             is_wrong_usage("--steps sets the length alone"));
}

TEST_CASE("sequences longer than the learned positions are refused", "[uptrain]") {
  const TemporaryDirectory directory;
  UptrainSettings settings = short_run(directory.path(), "gpt2", 5);
  settings.sequence_length = 17;
  CHECK_THAT(refusal_of([&] { plan_of(settings); }), is_wrong_usage("17", "16"));
  settings.sequence_length.reset();
  CHECK(plan_of(settings).sequence_length == 16);
}

TEST_CASE("schedule defaults follow from the run", "[uptrain]") {
  const TemporaryDirectory directory;
  UptrainSettings settings = short_run(directory.path(), "llama_mha", 200);
  CHECK(plan_of(settings).schedule.warmup_steps == 4);
  settings.schedule = LrScheduleKind::kWarmupStableDecay;
  CHECK(plan_of(settings).schedule.decay_steps == 20);
  settings.decay_steps = 197;
  CHECK_THAT(refusal_of([&] { plan_of(settings); }), is_wrong_usage("197", "allowed are 196"));
  settings.decay_steps.reset();
  settings.schedule = LrScheduleKind::kInverseSqrt;
  settings.learning_rate.reset();
  settings.steps.reset();
  settings.alpha = 0.05;
  settings.pretrain_steps = 1'000'000;
  const LrSchedule schedule = plan_of(settings).schedule;
  CHECK(schedule.start_step == 1'000'000);
  CHECK(schedule.warmup_steps == 0);
  CHECK(schedule.at(0) == 1e-3);
  settings.start_step = 0;
  CHECK(plan_of(settings).schedule.at(0) == 1e-2);
}

TEST_CASE("settings of another schedule are refused", "[uptrain]") {
  const TemporaryDirectory directory;
  UptrainSettings settings = short_run(directory.path(), "llama_mha", 20);
  settings.decay_steps = 4;
  settings.start_step = 9;
  settings.teacher.distillation = {1.5, 0.0};
  CHECK_THAT(refusal_of([&] { settings.validate(); }),
             is_wrong_usage("for the schedule wsd", "for the schedule inverse-sqrt",
                            "teacher's weight is 1.5", "temperature is 0"));
}

TEST_CASE("a plan counts both stacks of an encoder-decoder with their own tokens", "[uptrain]") {
  const TemporaryDirectory directory;
  UptrainSettings settings = short_run(directory.path(), "t5", 10);
  put_file(settings.data.front(), bytes_of_numbers(learnable_text(2000, 36)));
  settings.sequence_length = 20;
  settings.task.sentinels = Sentinels{39, 3};
  const UptrainPlan plan = plan_of(settings);
  // 3 tokens in 1 span: 20 - 3 + 1 + 1 for the encoder, 3 + 1 + 1 for the decoder.
  const double source = 19, target = 5;
  // H·d = 36, D = 20, MLP of 24, 8 buckets of 12 heads; norms of 20.
  const double attention = 4 * 36 * 20, mlp = 2 * 20 * 24;
  const double encoder = 2 * (attention + mlp + 2 * 20) + 8 * 12;
  const double decoder = 3 * (2 * attention + mlp + 3 * 20) + 8 * 12 + 2 * 20;  // two final norms
  const double scores =
      12 * 36 * (2 * source * source + 3 * target * target / 2 + 3 * source * target);
  const double per_window = 6 * encoder * source + 6 * (decoder + 40 * 20) * target + scores;
  CHECK(plan.parameters == static_cast<std::int64_t>(encoder + decoder) + 40 * 20);
  CHECK(plan.flops == per_window / 20 * static_cast<double>(plan.tokens));
}

TEST_CASE(
    "the memory estimate falls with Adafactor and fewer trained weights and rises with a teacher",
    "[uptrain]") {
  const TemporaryDirectory directory;
  UptrainSettings settings = short_run(directory.path(), "llama", 10);
  const double all = plan_of(settings).memory.total();
  settings.trained = TrainedWeights::kAttention;
  const double attention = plan_of(settings).memory.total();
  settings.trained = TrainedWeights::kKeysAndValues;
  const double kv = plan_of(settings).memory.total();
  CHECK(attention < all);
  CHECK(kv < attention);
  settings.trained = TrainedWeights::kAll;
  settings.recomputing = true;
  const double recomputing = plan_of(settings).memory.total();
  CHECK(recomputing < all);
  settings.optimizer.moments = Precision::kBf16;
  CHECK(plan_of(settings).memory.total() < recomputing);
  settings.optimizer = {.kind = OptimizerKind::kAdafactor};
  settings.recomputing = false;
  const double adafactor = plan_of(settings).memory.total();
  CHECK(adafactor < all);
  settings.teacher.model = settings.model;
  CHECK(plan_of(settings).memory.total() > adafactor);
}

TEST_CASE("the memory estimate lists each use", "[uptrain]") {
  const TemporaryDirectory directory;
  UptrainSettings settings = short_run(directory.path(), "llama", 10);
  settings.batch = 2;
  settings.accumulation = 1;
  const UptrainPlan plain = plan_of(settings);
  const auto parameters = static_cast<double>(plain.parameters);
  CHECK(plain.memory.weights == 4 * parameters);
  CHECK(plain.memory.masters == 0);
  CHECK(plain.memory.gradients == 4 * parameters);
  CHECK(plain.memory.optimizer == 8 * parameters);

  settings.precision = settings.optimizer.moments = Precision::kBf16;
  settings.accumulation = 3;
  settings.recomputing = true;
  const UptrainPlan narrow = plan_of(settings);
  CHECK(narrow.memory.weights == 2 * parameters);
  CHECK(narrow.memory.masters == 4 * parameters);
  CHECK(narrow.memory.gradients == (4 + 2) * parameters);
  CHECK(narrow.memory.optimizer == 4 * parameters);
  // The last norm. Two layers of hidden size 36, 12 query heads, 4 kv heads of 8, an MLP of 40.
  // Each keeps its input, one of them keeps everything that fused kernels need again, and its
  // backward pass makes gradients.
  const double block = 2 * 36 + ((12 + 2 * 4) + 12) * 8 + 2 * 36 + 3 * 40;
  const double backward = 3 * 40 + 3 * 36;
  CHECK(narrow.memory.activations ==
        2 * static_cast<double>(narrow.sequence_length) * 2 * (2 * 36 + 2 * 36 + block + backward));
}

TEST_CASE("bf16 moments are refused with a beta2 above 0.99", "[uptrain]") {
  const TemporaryDirectory directory;
  UptrainSettings settings = short_run(directory.path(), "llama", 10);
  settings.optimizer.moments = Precision::kBf16;
  settings.validate();
  settings.optimizer.beta2 = 0.999;
  CHECK_THAT(refusal_of([&] { settings.validate(); }), is_wrong_usage("beta2 of 0.99 at most"));
  settings.optimizer.kind = OptimizerKind::kAdafactor;
  CHECK_THAT(refusal_of([&] { settings.validate(); }), is_wrong_usage("for the optimizer adamw"));
}

}  // namespace regroup
