// Whole runs in the memory modes of a CPU, and states that pass from one mode to another.
#include <cmath>

#include <ATen/TensorOperators.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "tests/file_tree.h"
#include "tests/refusal.h"
#include "tests/temporary_directory.h"
#include "tests/uptrain/golden_case.h"
#include "tests/uptrain/never_stopped.h"
#include "tests/uptrain/token_text.h"
#include "uptrain/run/run_record.h"
#include "uptrain/train/training_loss.h"

namespace regroup {
namespace {

UptrainSettings bf16_run(const std::filesystem::path& directory, MemoryMode mode,
                         std::int64_t steps) {
  UptrainSettings settings = short_run(directory, "llama", steps);
  settings.precision = Precision::kBf16;
  settings.accumulation = 1;
  settings.memory = mode;
  return settings;
}

void train_directly(TrainedModel& trained, const Model& source, const UptrainSettings& settings) {
  const DataLoader data = open_training_data(settings, source.spec);
  Trainer trainer =
      trained.trainer(TrainingLoss(trained.model(), {}), data,
                      {.peak = 1e-2, .steps = *settings.steps, .kind = LrScheduleKind::kConstant});
  TrainingProgress progress;
  REQUIRE(trainer.run(progress, kNeverStopped, [](const StepReport&) {}));
}

}  // namespace

TEST_CASE("a state saved in one memory mode has the same masters in the other", "[uptrain]") {
  const bool from_compact = GENERATE(true, false);
  const MemoryMode one = from_compact ? MemoryMode::kCompact : MemoryMode::kFull;
  const MemoryMode other = from_compact ? MemoryMode::kFull : MemoryMode::kCompact;
  const TemporaryDirectory directory;
  UptrainSettings settings = bf16_run(directory.path(), one, 3);
  const Model source = open_computable_model(settings.model);
  TrainedModel trained(source, settings);
  train_directly(trained, source, settings);
  save_training_state(directory / "one", {.step = 3}, trained.state(), "a run");

  settings.memory = other;
  const TrainedModel resumed(source, settings);
  load_training_state(directory / "one", resumed.state(), "a run");
  for (std::size_t i = 0; i < trained.masters().size(); ++i) {
    const at::Tensor before = trained.masters().read(i), after = resumed.masters().read(i);
    CHECK(after.view(at::kInt).equal(before.view(at::kInt)));
    // More bits than the model computes with.
    CHECK_FALSE(before.to(at::kBFloat16).to(at::kFloat).equal(before));
  }
  save_training_state(directory / "other", {.step = 3}, resumed.state(), "a run");
  CHECK(tree_of(directory / "one") == tree_of(directory / "other"));
}

TEST_CASE("a run resumes in another memory mode", "[uptrain]") {
  const bool from_compact = GENERATE(true, false);
  const MemoryMode one = from_compact ? MemoryMode::kCompact : MemoryMode::kFull;
  const MemoryMode other = from_compact ? MemoryMode::kFull : MemoryMode::kCompact;
  const TemporaryDirectory directory;
  UptrainSettings settings = bf16_run(directory.path(), one, 8);
  const double whole = run_to_end(settings).last_loss;
  settings.output = directory / "changed";
  CHECK(run_until(settings, 3).kind() == ErrorKind::kInterruptedSaved);
  settings.memory = other;
  // The mean over the steps since it was resumed.
  const UptrainResult result = run_to_end(settings, /*resume=*/true);
  CHECK(result.progress.step == 8);
  CHECK(std::isfinite(result.last_loss));
  CHECK(result.last_loss < whole);
}

TEST_CASE("a compact run stopped after any step resumes to the same bytes", "[uptrain]") {
  const TemporaryDirectory directory;
  UptrainSettings settings = bf16_run(directory.path(), MemoryMode::kCompact, 5);
  settings.accumulation = GENERATE(1, 2);
  settings.trained = GENERATE(TrainedWeights::kAll, TrainedWeights::kKeysAndValues);
  run_to_end(settings);
  for (std::int64_t stop_after = 0; stop_after <= 4; ++stop_after) {
    CAPTURE(settings.accumulation, stop_after);
    settings.output = directory / ("stopped-" + std::to_string(stop_after));
    CHECK(run_until(settings, stop_after).kind() == ErrorKind::kInterruptedSaved);
    run_to_end(settings, /*resume=*/true);
    CHECK(tree_of(settings.output) == tree_of(directory / "out"));
  }
}

TEST_CASE("compact training follows full training", "[uptrain]") {
  const auto* name = GENERATE("llama", "gpt2", "t5");
  CAPTURE(name);
  const TemporaryDirectory directory;
  UptrainSettings settings = bf16_run(directory.path(), MemoryMode::kFull, 25);
  settings.model = golden(name);
  if (std::string(name) == "t5") {
    put_file(settings.data.front(), bytes_of_numbers(learnable_text(2000, 36)));
    settings.task.sentinels = Sentinels{39, 3};
  }
  settings.learning_rate = 1e-2;
  settings.eval_data = settings.data.front();
  const UptrainResult full = run_to_end(settings);
  settings.memory = MemoryMode::kCompact;
  settings.output = directory / "compact";
  const UptrainResult compact = run_to_end(settings);
  CHECK(std::abs(compact.before->loss - full.before->loss) < 1e-3);  // ties are rounded otherwise
  const double learned = full.before->loss - full.after->loss;
  CHECK(learned > 0.1);
  CHECK(std::abs(compact.after->loss - full.after->loss) < 0.1 * learned);
}

TEST_CASE("memory modes that cannot be are refused", "[uptrain]") {
  const TemporaryDirectory directory;
  UptrainSettings settings = short_run(directory.path(), "llama", 2);
  settings.memory = MemoryMode::kCompact;
  CHECK_THAT(refusal_of([&] { settings.validate(); }), is_wrong_usage("--dtype bf16"));
  settings.precision = Precision::kBf16;
  settings.validate();
  settings.memory = MemoryMode::kHost;
  CHECK_THAT(refusal_of([&] { settings.validate(); }), is_wrong_usage("host", "CPU"));
}

}  // namespace regroup
