// Gradients of whole models compared with differences of their losses, in fp64.
#include <cmath>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>

#include "tests/converter/conversion.h"
#include "tests/file_tree.h"
#include "tests/temporary_directory.h"
#include "tests/uptrain/golden_case.h"
#include "uptrain/train/objective.h"
#include "uptrain/train/trained_weights.h"
#include "uptrain/train/training_loss.h"

namespace regroup {
namespace {

at::Tensor loss_of(Transformer& model, const at::Tensor& tokens) {
  if (objective_of(model.spec()) != Objective::kNextToken) {
    const auto [hidden, targets] =
        predict(model, tokens, 0, {objective_of(model.spec()), {.token = 3}});
    return model.loss(hidden, targets);
  }
  const std::int64_t length = tokens.size(1) - 1;
  RouterBalance balance(model);
  balance.watch();
  const at::Tensor hidden = model.hidden_states(tokens.narrow(1, 0, length));
  const at::Tensor loss = model.loss(hidden, tokens.narrow(1, 1, length).flatten());
  return has_balance_loss(model.spec()) ? loss + balance.take() : loss;
}

// (loss(x + h) - loss(x - h)) / 2h for one element of a parameter.
double slope_at(Transformer& model, const at::Tensor& tokens, const at::Tensor& parameter,
                std::int64_t element) {
  constexpr double kStep = 1e-5;
  const at::NoGradGuard no_gradients;
  const at::Tensor value = parameter.view({-1}).select(0, element);
  value.add_(kStep);
  const double above = loss_of(model, tokens).item<double>();
  value.sub_(2 * kStep);
  const double below = loss_of(model, tokens).item<double>();
  value.add_(kStep);
  return (above - below) / (2 * kStep);
}

// For every parameter, checks the element with the largest gradient and one from the middle.
void check_gradients(const Model& source, const at::Tensor& tokens, AlibiForm form) {
  const Parameters parameters =
      load_parameters(source.spec, source.checkpoint, at::kDouble, at::kCPU);
  Transformer model(source.spec, parameters);
  model.set_alibi_form(form);
  parameters.require_gradients();
  GradientSum gradients(parameters.tensors());
  gradients.add(loss_of(model, tokens));
  for (std::size_t i = 0; i < parameters.entries().size(); ++i) {
    const auto& [tensor, value] = parameters.entries()[i];
    CAPTURE(tensor);
    const at::Tensor flat = gradients.sums()[i].view({-1});
    for (const std::int64_t element :
         {flat.abs().argmax().item<std::int64_t>(), flat.numel() / 2}) {
      CHECK_THAT(flat.select(0, element).item<double>(),
                 Catch::Matchers::WithinAbs(slope_at(model, tokens, value, element), 1e-7));
    }
  }
}

}  // namespace

TEST_CASE("gradients of every parameter equal differences of the loss", "[uptrain]") {
  const auto* name = GENERATE(
      "llama", "llama_mha", "qwen2", "mistral", "gpt2", "bloom", "bloom_12", "t5_small", "t5_v1_1",
      "umt5", "bert", "roberta", "nemotron_nas", "stablelm_qk", "qwen3", "olmo2", "phi3",
      "phi3_longrope", "cohere", "granite", "smollm3", "biogpt", "persimmon", "bart", "mbart",
      "m2m_100", "pegasus", "llava", "baichuan2_13b", "internlm2", "qwen", "olmo3", "gpt_neo",
      "gemma2", "gemma3", "cohere2", "xglm", "olmoe", "qwen2_moe", "mixtral_stacked", "granitemoe",
      "deepseek", "modernbert", "nomic_bert", "mpnet", "jina_bert", "electra_small", "chatglm2");
  const auto form = GENERATE(AlibiForm::kBias, AlibiForm::kExtraDimensions);
  const GoldenCase golden = load_golden_case(name);
  if (golden.source.spec.positions != PositionKind::kAlibi && form == AlibiForm::kExtraDimensions) {
    return;
  }
  CAPTURE(name);
  check_gradients(golden.source, golden.tokens, form);
}

TEST_CASE("gradients through ALiBi in encoders and decoders equal differences of the loss",
          "[uptrain]") {
  const auto* name = GENERATE("t5_v1_1", "bert");
  const auto form = GENERATE(AlibiForm::kBias, AlibiForm::kExtraDimensions);
  CAPTURE(name);
  const TemporaryDirectory directory;
  convert(golden(name), directory / "alibi",
          {.kv_heads = {4}, .positions = PositionChange::kAlibi});
  check_gradients(open_computable_model(directory / "alibi"), load_golden_case(name).tokens, form);
}

TEST_CASE("gradients are summed over micro-batches", "[uptrain]") {
  const GoldenCase golden = load_golden_case("llama");
  const Parameters parameters =
      load_parameters(golden.source.spec, golden.source.checkpoint, at::kDouble, at::kCPU);
  Transformer model(golden.source.spec, parameters);
  parameters.require_gradients();
  GradientSum whole(parameters.tensors());
  whole.add(loss_of(model, golden.tokens));
  GradientSum parts(parameters.tensors());
  for (std::int64_t row = 0; row < 2; ++row) {
    parts.add(loss_of(model, golden.tokens.narrow(0, row, 1)) / 2.0);
  }
  for (std::size_t i = 0; i < whole.sums().size(); ++i) {
    CHECK(largest_difference(whole.sums()[i], parts.sums()[i]) <= 1e-14);
  }
}

}  // namespace regroup
