// Distillation of attention outputs, layer by layer.
#include <cmath>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros_like.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <torch/csrc/autograd/autograd.h>

#include "tests/refusal.h"
#include "tests/temporary_directory.h"
#include "tests/uptrain/golden_case.h"
#include "tests/uptrain/token_text.h"
#include "uptrain/train/data_loader.h"
#include "uptrain/train/objective.h"
#include "uptrain/train/training_loss.h"

namespace regroup {
namespace {

// A fixture as the teacher and, with other weights, as its student, in fp64.
struct Pair {
  explicit Pair(const std::string& name, double change = 0.02)
      : golden(load_golden_case(name)),
        weights(
            load_parameters(golden.source.spec, golden.source.checkpoint, at::kDouble, at::kCPU)),
        teacher(golden.source.spec, load_parameters(golden.source.spec, golden.source.checkpoint,
                                                    at::kDouble, at::kCPU)),
        student(golden.source.spec, weights) {
    for (const at::Tensor& weight : weights.tensors()) {
      weight.mul_(1.0 + change).add_(change * weight.flip(0));
    }
  }

  at::Tensor term(AttentionDistillation& distillation) {
    const Task task{objective_of(golden.source.spec), {.token = 3}};
    const at::Tensor ids = golden.tokens.narrow(1, 0, window_width(task.objective, 11));
    distillation.watch();
    predict(student, ids, 0, task);
    {
      const at::NoGradGuard no_gradients;
      predict(teacher, ids, 0, task);
    }
    return distillation.take();
  }

  GoldenCase golden;
  Parameters weights;
  Transformer teacher, student;
};

// Zeros for parameters that the attentions do not depend on, such as the last MLP.
std::vector<at::Tensor> gradients_of(const at::Tensor& loss, const Parameters& parameters) {
  const std::vector<at::Tensor> weights = parameters.tensors();
  std::vector<at::Tensor> gradients =
      torch::autograd::grad({loss}, weights, {}, std::nullopt, /*create_graph=*/false,
                            /*allow_unused=*/true);
  for (std::size_t i = 0; i < weights.size(); ++i) {
    gradients[i] = gradients[i].defined() ? gradients[i] : at::zeros_like(weights[i]);
  }
  return gradients;
}

}  // namespace

TEST_CASE("equal attention outputs have no distillation loss", "[uptrain]") {
  const auto* name = GENERATE("llama_mha", "gpt2", "bloom", "t5_v1_1", "bert", "olmo2", "phi");
  CAPTURE(name);
  Pair same(name, 0.0);
  AttentionDistillation nothing(same.student, same.teacher);
  CHECK(same.term(nothing).item<double>() == 0.0);
  Pair changed(name);
  AttentionDistillation something(changed.student, changed.teacher);
  CHECK(changed.term(something).item<double>() > 1e-5);
}

TEST_CASE("the loss is the mean relative squared error of the attention outputs", "[uptrain]") {
  // An output 1.25 times too large has the relative squared error (1/4)².
  const GoldenCase golden = load_golden_case("llama_mha");
  ModelSpec spec = golden.source.spec;
  spec.layers.resize(1);
  spec.kv_heads.resize(1);
  const Parameters teacher = load_parameters(spec, golden.source.checkpoint, at::kDouble, at::kCPU);
  const Parameters student = load_parameters(spec, golden.source.checkpoint, at::kDouble, at::kCPU);
  student.at(spec.layers.front().attention.o.weight).mul_(1.25);
  student.at(spec.layers.front().attention.o.bias).mul_(1.25);
  Transformer one(spec, student), other(spec, teacher);
  AttentionDistillation distillation(one, other);
  distillation.watch();
  one.hidden_states(golden.tokens);
  other.hidden_states(golden.tokens);
  CHECK_THAT(distillation.take().item<double>(), Catch::Matchers::WithinRel(0.0625, 1e-12));
}

TEST_CASE("gradients of the loss equal differences of it with and without recomputation",
          "[uptrain]") {
  const auto* name = GENERATE("llama_mha", "gpt2", "bloom", "t5_v1_1", "bert");
  const bool recomputing = GENERATE(false, true);
  CAPTURE(name, recomputing);
  Pair pair(name);
  pair.student.set_recomputing(recomputing);
  pair.weights.require_gradients();
  AttentionDistillation distillation(pair.student, pair.teacher);
  const std::vector<at::Tensor> gradients = gradients_of(pair.term(distillation), pair.weights);
  const at::NoGradGuard no_gradients;
  // Along the gradient, of length g, the loss rises by g² per unit step.
  double square = 0.0;
  for (const at::Tensor& gradient : gradients) {
    square += gradient.square().sum().item<double>();
  }
  REQUIRE(square > 0.0);
  const double step = 1e-6 / std::sqrt(square);
  const auto error_at = [&](double times) {
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      pair.weights.tensors()[i].add_(gradients[i], times * step);
    }
    return pair.term(distillation).item<double>();
  };
  const double above = error_at(1);
  const double below = error_at(-2);
  CHECK_THAT((above - below) / (2 * step), Catch::Matchers::WithinRel(square, 1e-4));
}

TEST_CASE("what follows the end of a document has no part in any loss", "[uptrain]") {
  const std::string name = GENERATE("llama_mha", "bloom", "mixtral_stacked", "deepseek");
  const bool recomputing = GENERATE(false, true);
  CAPTURE(name, recomputing);
  Pair pair(name);
  pair.student.set_recomputing(recomputing);
  AttentionDistillation attention(pair.student, pair.teacher);
  RouterBalance balance(pair.student);
  TrainingLoss loss(pair.student, {objective_of(pair.golden.source.spec), {}});
  loss.set_teacher(pair.teacher, {});
  loss.set_attention(attention, 1.0);
  if (has_balance_loss(pair.golden.source.spec)) {
    loss.set_router_balance(balance);
  }
  const at::NoGradGuard no_gradients;
  const at::Tensor document = pair.golden.tokens.narrow(0, 0, 1).narrow(1, 0, 8);
  const at::Tensor padding = at::full({1, 4}, kNoToken, at::kLong);
  const double expected = loss(document, 0).item<double>();
  CHECK_THAT(loss(at::cat({document, padding}, 1), 0).item<double>(),
             Catch::Matchers::WithinRel(expected, 1e-10));
}

TEST_CASE("models with different layers are refused", "[uptrain]") {
  Pair pair("llama_mha");
  ModelSpec shorter = pair.golden.source.spec;
  shorter.layers.pop_back();
  shorter.kv_heads.pop_back();
  Transformer less(shorter, pair.weights);
  CHECK_THAT(refusal_of([&] { AttentionDistillation(pair.student, less); }),
             is_bad_input("attention layers of width", "layer by layer"));
}

TEST_CASE("a run with attention distillation resumes exactly", "[uptrain]") {
  const TemporaryDirectory directory;
  UptrainSettings settings = short_run(directory.path(), "llama", 4);
  settings.eval_data = settings.data.front();
  settings.eval_every = 2;
  settings.teacher.model = golden("llama_bf16");
  settings.teacher.attention_weight = 3.0;
  settings.recomputing = GENERATE(false, true);
  const double with_attention = run_to_end(settings).last_loss;
  settings.output = directory / "stopped";
  run_until(settings, 3);
  run_to_end(settings, /*resume=*/true);
  CHECK(tree_of(directory / "stopped") == tree_of(directory / "out"));
  settings.output = directory / "without";
  settings.teacher.attention_weight = 0.0;
  CHECK(run_to_end(settings).last_loss < with_attention);
  settings.output = directory / "alone";
  settings.teacher.model.clear();
  settings.teacher.attention_weight = 1.0;
  CHECK_THAT(refusal_of([&] { run_to_end(settings); }), is_wrong_usage("needs the teacher model"));
}

}  // namespace regroup
