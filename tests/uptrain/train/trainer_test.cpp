#include "uptrain/train/trainer.h"

#include <cmath>
#include <limits>
#include <memory>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <catch2/catch_test_macros.hpp>

#include "tests/refusal.h"
#include "tests/temporary_directory.h"
#include "tests/uptrain/golden_case.h"
#include "tests/uptrain/token_text.h"
#include "uptrain/train/optimizer.h"
#include "uptrain/train/training_loss.h"

namespace regroup {
namespace {

// A trainer with all its parts, on a fixture.
struct Bench {
  explicit Bench(const TemporaryDirectory& directory, std::int64_t batch, std::int64_t accumulation)
      : golden(load_golden_case("llama")),
        parameters(
            load_parameters(golden.source.spec, golden.source.checkpoint, at::kFloat, at::kCPU)),
        model(golden.source.spec, parameters),
        masters(parameters),
        frozen(golden.source.spec, TrainedWeights::kAll, masters),
        optimizer(make_optimizer(masters, {})),
        settings(settings_in(directory, batch, accumulation)),
        data(settings.data, 12, 64, 7),
        trainer(TrainingLoss(model, {}), parameters, masters, frozen, *optimizer, data, settings,
                {.peak = 1e-3, .final_ratio = 0.1, .warmup_steps = 1, .steps = 20}) {}

  static UptrainSettings settings_in(const TemporaryDirectory& directory, std::int64_t batch,
                                     std::int64_t accumulation) {
    UptrainSettings settings = short_run(directory.path(), "llama", 1);
    settings.batch = batch;
    settings.accumulation = accumulation;
    settings.max_skipped_in_a_row = 3;
    return settings;
  }

  GoldenCase golden;
  Parameters parameters;
  Transformer model;
  MasterWeights masters;
  FrozenQueries frozen;
  std::unique_ptr<Optimizer> optimizer;
  UptrainSettings settings;
  DataLoader data;
  Trainer trainer;
  TrainingProgress progress;
};

void spoil(const Parameters& parameters, double value) {
  const at::NoGradGuard no_gradients;
  parameters.entries().front().value.fill_(value);
}

}  // namespace

TEST_CASE("accumulated small batches equal one large batch", "[uptrain]") {
  const TemporaryDirectory directory;
  Bench large(directory, 6, 1);
  Bench small(directory, 2, 3);
  std::atomic<bool> stop{false};
  std::vector<double> losses;
  const auto stop_at_three = [&](const StepReport& report) {
    losses.push_back(report.loss);
    stop = report.step == 3;
  };
  CHECK_FALSE(large.trainer.run(large.progress, stop, stop_at_three));
  stop = false;
  CHECK_FALSE(small.trainer.run(small.progress, stop, stop_at_three));
  CHECK(large.progress.samples == 18);
  CHECK(small.progress.samples == 18);
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(std::abs(losses[i] - losses[i + 3]) < 1e-5);
  }
  for (std::size_t i = 0; i < large.parameters.entries().size(); ++i) {
    CHECK(largest_difference(large.parameters.entries()[i].value.detach(),
                             small.parameters.entries()[i].value.detach()) < 1e-4);
  }
}

TEST_CASE("non-finite steps are skipped and counted and too many end the run", "[uptrain]") {
  const TemporaryDirectory directory;
  Bench bench(directory, 2, 1);
  const at::Tensor other = bench.parameters.entries().back().value;
  const at::Tensor embedding = bench.parameters.entries().front().value;
  const at::Tensor good = embedding.detach().clone();
  at::Tensor before;
  std::vector<bool> skipped;
  const auto watch = [&](const StepReport& report) {
    skipped.push_back(report.skipped);
    const at::NoGradGuard no_gradients;
    if (report.step == 1) {  // steps 2 and 3 are NaN, step 4 is finite, and all later ones are NaN
      spoil(bench.parameters, std::numeric_limits<double>::quiet_NaN());
      before = other.detach().clone();
    } else if (report.step == 3) {
      CHECK(other.detach().equal(before));
      embedding.copy_(good);
    } else if (report.step == 4) {
      CHECK_FALSE(other.detach().equal(before));
      spoil(bench.parameters, std::numeric_limits<double>::infinity());
    }
  };
  const std::atomic<bool> go_on{false};
  CHECK_THAT(refusal_of([&] { bench.trainer.run(bench.progress, go_on, watch); }),
             is_bad_input("step 8", "4 times in a row", "allowed are 3"));
  CHECK(skipped == std::vector<bool>{false, true, true, false, true, true, true, true});
  CHECK(bench.progress.skipped == 6);
  CHECK(bench.optimizer->state().back().value.item<double>() == 2.0);
}

}  // namespace regroup
