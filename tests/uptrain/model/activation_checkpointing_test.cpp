#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/tensor.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "tests/uptrain/golden_case.h"
#include "uptrain/model/block.h"
#include "uptrain/train/objective.h"
#include "uptrain/train/trained_weights.h"
#include "uptrain/train/training_loss.h"

namespace regroup {
namespace {

at::Tensor leaf(double value) {
  return at::tensor({value}, at::TensorOptions().dtype(at::kDouble)).requires_grad_();
}

std::vector<at::Tensor> gradients_of(const at::Tensor& loss, const std::vector<at::Tensor>& of) {
  GradientSum gradients(of);
  gradients.add(loss);
  return gradients.sums();
}

// Gradients of a fixture's parameters, by name.
std::vector<at::Tensor> gradients_of_fixture(const GoldenCase& golden, bool recomputing) {
  const Parameters parameters =
      load_parameters(golden.source.spec, golden.source.checkpoint, at::kDouble, at::kCPU);
  Transformer model(golden.source.spec, parameters);
  model.set_recomputing(recomputing);
  parameters.require_gradients();
  const Task task{objective_of(model.spec()), {.token = 3}};
  RouterBalance balance(model);
  balance.watch();
  const auto [hidden, targets] =
      predict(model, golden.tokens.narrow(1, 0, window_width(task.objective, 12)), 0, task);
  const at::Tensor loss = model.loss(hidden, targets);
  return gradients_of(has_balance_loss(model.spec()) ? loss + balance.take() : loss,
                      parameters.tensors());
}

}  // namespace

TEST_CASE("a recomputed function has the same value and gradients", "[uptrain]") {
  const at::Tensor x = leaf(3), fixed = leaf(5).detach(), weight = leaf(2), unused = leaf(7);
  int calls = 0;
  const auto function = [&](const std::vector<at::Tensor>& inputs) {
    CHECK(at::GradMode::is_enabled() == (++calls == 2));
    CHECK_FALSE(inputs[1].defined());
    return std::vector<at::Tensor>{weight * inputs[0] * inputs[0] + inputs[2]};
  };
  const at::Tensor y =
      recompute_for_gradients(function, {x * 2.0, {}, fixed}, {weight, unused}).front();
  CHECK(y.item<double>() == 77);
  const auto gradients = gradients_of(y.square().sum(), {x, weight});
  CHECK(gradients[0].item<double>() == 2 * 77 * (2 * 2 * 6) * 2);
  CHECK(gradients[1].item<double>() == 2 * 77 * 36);
  CHECK(calls == 2);
}

TEST_CASE("models that recompute their blocks have the same gradients", "[uptrain]") {
  const auto* name =
      GENERATE("llama_mha", "qwen3", "mistral", "gpt2", "bloom", "falcon_40b", "olmo2", "phi",
               "phi3", "granite", "cohere", "stablelm_qk", "mpt_12", "opt_350m", "t5_v1_1",
               "t5_small", "umt5", "bart", "mbart", "bert", "nemotron_nas", "gemma2", "gemma3",
               "olmo3", "olmoe", "qwen2_moe", "mixtral_stacked", "deepseek");
  CAPTURE(name);
  const GoldenCase golden = load_golden_case(name);
  const auto kept = gradients_of_fixture(golden, false);
  const auto recomputed = gradients_of_fixture(golden, true);
  REQUIRE(kept.size() == recomputed.size());
  for (std::size_t i = 0; i < kept.size(); ++i) {
    CHECK(largest_difference(kept[i], recomputed[i]) < 1e-13);  // sums in another order
  }
}

}  // namespace regroup
