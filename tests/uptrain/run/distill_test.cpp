// Distillation against the divergence that the test computes from both models' logits.
#include "uptrain/run/distill.h"

#include <atomic>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>

#include "tests/converter/conversion.h"
#include "tests/file_tree.h"
#include "tests/refusal.h"
#include "tests/temporary_directory.h"
#include "tests/uptrain/golden_case.h"
#include "tests/uptrain/never_stopped.h"
#include "tests/uptrain/token_text.h"
#include "uptrain/train/objective.h"
#include "uptrain/train/training_loss.h"

namespace regroup {
namespace {

using Catch::Matchers::WithinRel;

constexpr std::int64_t kContext = 16;

// A golden model, its mean with one kv head, and a text for learning and one for judging.
struct Distilled {
  TemporaryDirectory directory;
  Model source;
  std::vector<std::string> attention;  // the tensors that conversion solves for

  explicit Distilled(const std::string& name) : source(load_golden_case(name).source) {
    ConversionRequest request;
    request.kv_heads = {1};
    request.dtype = DType::kF32;
    request.pooling.distillation = Recipe();
    const ConversionPlan plan = plan_conversion(source, request);
    for (const TensorStep& step : plan.steps) {
      if (step.solved() != nullptr) {
        attention.push_back(step.output.name);
      }
    }
    convert(source.path, directory / "result", request);
    const auto vocabulary = static_cast<std::uint16_t>(source.spec.vocab_size);
    put_file(directory / "learn", bytes_of_numbers(learnable_text(64 * kContext + 1, vocabulary)));
    put_file(directory / "judge", bytes_of_numbers(learnable_text(8 * kContext + 1, vocabulary)));
  }

  DistillSettings settings() const {
    DistillSettings settings;
    settings.run.data = {directory / "learn"};
    settings.run.eval_data = directory / "judge";
    settings.run.sequence_length = kContext;
    settings.run.batch = 4;
    settings.run.steps = 20;
    settings.relative_rate = 0.02;
    return settings;
  }

  Model result() const { return open_model(directory / "result"); }

  DistillReport run(const DistillSettings& settings, const std::atomic<bool>& stop = kNeverStopped,
                    const DistillProgress& after_step = {}) const {
    return distill(source, result(), attention, settings, after_step, stop);
  }

  at::Tensor window_logits_of(const Model& model) const {
    const at::NoGradGuard no_gradients;
    const TokenFile text = TokenFile::open(directory / "judge");
    at::Tensor ids = at::zeros({8, kContext}, at::kLong);
    text.read(0, {ids.mutable_data_ptr<std::int64_t>(), 8 * kContext});
    return window_logits(load_transformer(model, at::kFloat, at::kCPU), ids).to(at::kDouble);
  }

  // The divergence of the source's predictions from the result's, in fp64 from fp32 logits.
  double divergence() const {
    const at::Tensor of_source = window_logits_of(source).log_softmax(-1);
    const at::Tensor of_result = window_logits_of(result()).log_softmax(-1);
    return (of_source.exp() * (of_source - of_result)).sum(-1).mean().item<double>();
  }

  // The mean relative squared error of the attentions' outputs.
  double attention_error() const {
    const at::NoGradGuard no_gradients;
    const TokenFile text = TokenFile::open(directory / "judge");
    at::Tensor ids = at::zeros({8, kContext}, at::kLong);
    text.read(0, {ids.mutable_data_ptr<std::int64_t>(), 8 * kContext});
    Transformer student = load_transformer(result(), at::kFloat, at::kCPU);
    Transformer teacher = load_transformer(source, at::kFloat, at::kCPU);
    AttentionDistillation attentions(student, teacher);
    attentions.watch();
    student.hidden_states(ids);
    teacher.hidden_states(ids);
    return attentions.take().item<double>();
  }

  std::string stored(const std::string& tensor) const {
    const Model model = result();
    std::string bytes(model.checkpoint.at(tensor).bytes(), '\0');
    model.checkpoint.read(model.checkpoint.at(tensor),
                          std::as_writable_bytes(std::span(bytes.data(), bytes.size())));
    return bytes;
  }
};

}  // namespace

TEST_CASE("distilled attention brings the predictions closer to the source's", "[uptrain]") {
  for (const char* name : {"llama_mha", "gpt2", "bloom", "t5"}) {
    CAPTURE(name);
    const Distilled models(name);
    const double before = models.divergence();
    const std::string& embedding = models.source.spec.token_embedding;
    const std::string kept = models.stored(embedding);
    const std::string changed = models.stored(models.attention.front());
    const DistillReport report = models.run(models.settings());
    CHECK(report.of_predictions);
    CHECK(report.improved());
    CHECK(models.divergence() < 0.8 * before);
    CHECK(models.stored(embedding) == kept);
    CHECK(models.stored(models.attention.front()) != changed);
  }
}

TEST_CASE("without a head, distillation brings the last hidden states closer", "[uptrain]") {
  const Distilled models("bert_base");
  const DistillReport report = models.run(models.settings());
  CHECK(!report.of_predictions);
  CHECK(report.improved());
}

// What a step minimises before it changes anything, against the error of inputs cut by hand.
TEST_CASE("an encoder is distilled on whole windows, their halves and their quarters",
          "[uptrain]") {
  const Distilled models("mpnet");
  constexpr std::int64_t kLength = 56, kBatch = 2, kBefore = 1, kAfter = 2;
  DistillSettings settings = models.settings();
  settings.run.sequence_length = kLength;
  settings.run.batch = kBatch;
  settings.run.steps = 3;
  settings.relative_rate = 1e-9;
  settings.attention_weight = 0.0;
  settings.frame = {.before = kBefore, .after = kAfter};
  std::vector<double> losses;
  const DistillReport report = models.run(
      settings, kNeverStopped, [&](bool, const StepReport& step) { losses.push_back(step.loss); });
  REQUIRE(!report.of_predictions);
  REQUIRE(losses.size() == 3);
  const at::NoGradGuard no_gradients;
  Transformer student = load_transformer(models.result(), at::kFloat, at::kCPU);
  Transformer teacher = load_transformer(models.source, at::kFloat, at::kCPU);
  const DataLoader text(settings.run.data, kLength, models.source.spec.vocab_size,
                        settings.run.seed);
  for (std::int64_t step = 0; step < 3; ++step) {
    const at::Tensor windows = text.batch(kBatch * step, kBatch).narrow(1, 0, kLength);
    at::Tensor inputs = windows.reshape({kBatch << step, kLength >> step}).clone();
    inputs.select(1, 0).fill_(kBefore);
    inputs.select(1, (kLength >> step) - 1).fill_(kAfter);
    const at::Tensor wanted = teacher.hidden_states(inputs);
    const at::Tensor error = (student.hidden_states(inputs) - wanted).square().sum();
    const double expected = (error / wanted.square().sum()).item<double>();
    CAPTURE(step);
    CHECK_THAT(losses[static_cast<std::size_t>(step)], WithinRel(expected, 0.01));
  }
}

TEST_CASE("attentions count by default only where there are no predictions", "[uptrain]") {
  const Distilled decoder("llama_mha"), encoder("bert_base");
  CHECK(decoder.run(decoder.settings()).attention_weight == 0.0);
  CHECK(encoder.run(encoder.settings()).attention_weight == 1.0);
}

TEST_CASE("distillation brings each attention closer to the source's as its weight says",
          "[uptrain]") {
  for (const char* name : {"llama_mha", "bert_base"}) {
    CAPTURE(name);
    const Distilled without(name), with(name);
    DistillSettings settings = without.settings();
    settings.attention_weight = 0.0;
    without.run(settings);
    settings = with.settings();
    settings.attention_weight = 10.0;
    with.run(settings);
    CHECK(with.attention_error() < 0.9 * without.attention_error());
  }
}

TEST_CASE("a long distillation finds its learning rate by trials, a short one does not",
          "[uptrain]") {
  const Distilled models("llama_mha");
  DistillSettings settings = models.settings();
  settings.relative_rate = std::nullopt;
  std::int64_t trials = 0, steps = 0;
  const auto count = [&](bool trial, const StepReport& step) {
    (trial ? trials : steps) += 1;
    CHECK(step.step <= (trial ? 12 : *settings.run.steps));
  };
  const double usual = models.run(settings, kNeverStopped, count).learning_rate;
  CHECK(trials == 0);
  CHECK(steps == 20);
  const Distilled again("llama_mha");
  settings = again.settings();
  settings.relative_rate = std::nullopt;
  settings.run.steps = 128;
  steps = 0;
  const DistillReport report = again.run(settings, kNeverStopped, count);
  CHECK(report.improved());
  CHECK(trials >= 3 * 12);
  CHECK(trials % 12 == 0);
  CHECK(steps == 128);
  // Weights as small and fresh as these learn fastest at a rate far above the usual one.
  CHECK(report.relative_rate > 0.006);
  CHECK(report.learning_rate > 3 * usual);
}

TEST_CASE("weights that come no closer to the source are not written", "[uptrain]") {
  const Distilled models("llama_mha");
  // A copy of the source cannot come closer to it.
  std::filesystem::remove_all(models.directory / "result");
  std::filesystem::copy(models.source.path, models.directory / "result");
  const auto before = tree_of(models.directory / "result");
  const DistillReport report = models.run(models.settings());
  CHECK(report.before == 0.0);
  CHECK(!report.improved());
  CHECK((tree_of(models.directory / "result") == before));
}

TEST_CASE("distillation that is stopped or has no text writes nothing", "[uptrain]") {
  const Distilled models("llama_mha");
  const auto before = tree_of(models.directory / "result");
  const std::atomic<bool> stopped = true;
  CHECK(refusal_of([&] { models.run(models.settings(), stopped); }).kind() ==
        ErrorKind::kInterrupted);
  put_file(models.directory / "judge", bytes_of_numbers(std::vector<std::uint16_t>{1, 2, 3}));
  CHECK(refusal_of([&] { models.run(models.settings()); }).kind() == ErrorKind::kBadInput);
  CHECK(tree_of(models.directory / "result") == before);
}

TEST_CASE("the memory of distillation counts both models", "[uptrain]") {
  const Distilled models("llama_mha");
  DistillSettings settings = models.settings();
  const MemoryNeed small = distill_memory(models.source, models.result().spec, settings);
  settings.run.batch *= 4;
  const MemoryNeed large = distill_memory(models.source, models.result().spec, settings);
  double weights = 0.0;
  for (const TensorInfo& tensor : models.source.checkpoint.tensors()) {
    weights += static_cast<double>(tensor.elements());
  }
  CHECK(free_memory(settings.run.device).holds(small));
  CHECK(small.device > 2 * 2 * weights);  // in bf16 at least
  CHECK(large.device > small.device);
}

}  // namespace regroup
