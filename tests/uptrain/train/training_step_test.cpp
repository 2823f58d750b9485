// Training steps compared with torch and transformers (training_step.safetensors of the fixtures).
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>

#include "tests/file_tree.h"
#include "tests/temporary_directory.h"
#include "tests/uptrain/golden_case.h"
#include "tests/uptrain/token_text.h"
#include "uptrain/train/objective.h"
#include "uptrain/train/trainer.h"
#include "uptrain/train/training_loss.h"

namespace regroup {
namespace {

// The settings of make_training_step.py. With AdamW's usual ε of 1e-8, a gradient that consists of
// rounding errors would change a weight as much as any other.
constexpr double kRate = 0.05;
constexpr double kEpsilon = 1e-2;

// A fixture's model and its loss on the tokens of its golden logits.
struct TrainingSetup {
  explicit TrainingSetup(const std::string& fixture)
      : name(fixture),
        golden(load_golden_case(fixture)),
        parameters(
            load_parameters(golden.source.spec, golden.source.checkpoint, at::kFloat, at::kCPU)),
        model(golden.source.spec, parameters) {}

  at::Tensor loss() const {
    const Objective objective = objective_of(model.spec());
    RouterBalance balance(model);
    balance.watch();
    const auto [hidden, targets] = predict(model, golden.tokens, 0, {objective});
    const at::Tensor loss = model.loss(hidden, targets);
    return has_balance_loss(model.spec()) ? loss + balance.take() : loss;
  }
  at::Tensor expected(const std::string& tensor) const {
    return read_tensor(regroup::golden(name) / "training_step.safetensors", tensor);
  }

  std::string name;
  GoldenCase golden;
  Parameters parameters;
  mutable Transformer model;  // whose routing loss() observes
};

// Swaps two rows of the first tensor, the token embedding.
void exchange_rows(const Parameters& parameters) {
  const at::NoGradGuard no_gradients;
  const at::Tensor& embedding = parameters.entries().front().value;
  const at::Tensor kept = embedding.select(0, 3).clone();
  embedding.select(0, 3).copy_(embedding.select(0, 4));
  embedding.select(0, 4).copy_(kept);
}

// The largest error of the gradients, relative to the largest gradient.
double stray_of_gradients(const TrainingSetup& setup) {
  setup.parameters.require_gradients();
  GradientSum gradients(setup.parameters.tensors());
  gradients.add(setup.loss());
  double stray = 0.0;
  double largest = 0.0;
  for (std::size_t i = 0; i < gradients.sums().size(); ++i) {
    const at::Tensor expected = setup.expected("gradient." + setup.parameters.entries()[i].name);
    stray = std::max(stray, largest_difference(gradients.sums()[i], expected));
    largest = std::max(largest, expected.abs().max().item<double>());
  }
  return stray / largest;
}

// Steps on the same tokens, by the loop that uptraining uses.
void take_steps(const TrainingSetup& setup, OptimizerKind kind, std::int64_t steps) {
  const TemporaryDirectory directory;
  UptrainSettings settings = short_run(directory.path(), setup.name, 1);
  settings.batch = 1;
  settings.accumulation = 1;
  const DataLoader data(settings.data, 12, 64, 7);
  const MasterWeights masters(setup.parameters);
  const auto optimizer = make_optimizer(masters, {.kind = kind, .epsilon = kEpsilon});
  const FrozenQueries frozen(setup.model.spec(), TrainedWeights::kAll, masters);
  Trainer trainer([&](const at::Tensor&, std::int64_t) { return setup.loss(); }, setup.parameters,
                  masters, frozen, *optimizer, data, settings,
                  {.peak = kRate, .steps = steps, .kind = LrScheduleKind::kConstant});
  TrainingProgress progress;
  REQUIRE(trainer.run(progress, std::atomic<bool>(false), {}));
}

double stray_of_weights(const TrainingSetup& setup, OptimizerKind kind) {
  double stray = 0.0;
  for (const Parameters::Entry& entry : setup.parameters.entries()) {
    const std::string name = fmt::format("{}.{}", name_of(kind), entry.name);
    stray = std::max(stray, largest_difference(entry.value.detach(), setup.expected(name)));
  }
  return stray;
}

}  // namespace

TEST_CASE("loss and gradients equal torch's", "[uptrain]") {
  const std::string name =
      GENERATE("llama_mha", "gpt2", "bloom", "t5_v1_1", "mixtral_stacked", "deepseek");
  CAPTURE(name);
  const TrainingSetup setup(name);
  CHECK_THAT(setup.loss().item<double>(),
             Catch::Matchers::WithinAbs(setup.expected("loss").item<double>(), 1e-5));
  CHECK(stray_of_gradients(setup) < 1e-5);

  const TrainingSetup wrong(name);
  exchange_rows(wrong.parameters);
  CHECK(stray_of_gradients(wrong) > 1e-2);
}

TEST_CASE("two training steps give torch's weights", "[uptrain]") {
  const std::string name = GENERATE("llama_mha", "t5_v1_1");
  const OptimizerKind kind = GENERATE(OptimizerKind::kAdamW, OptimizerKind::kAdafactor);
  CAPTURE(name, name_of(kind));
  const TrainingSetup setup(name);
  take_steps(setup, kind, 2);
  CHECK(stray_of_weights(setup, kind) < 1e-4 * kRate);

  const TrainingSetup behind(name);
  take_steps(behind, kind, 1);
  CHECK(stray_of_weights(behind, kind) > 0.1 * kRate);
}

}  // namespace regroup
