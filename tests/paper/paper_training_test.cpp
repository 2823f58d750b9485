// Compares whole runs and measurements on the paper device with the CPU. Their results are equal,
// the host waits once per step and uploads once per micro-batch, and memory stays within the plan.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <memory>

#include <ATen/core/grad_mode.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>

#include "formats/base/json.h"
#include "tests/converter/conversion.h"
#include "tests/file_tree.h"
#include "tests/paper/paper_device.h"
#include "tests/paper/paper_fused.h"
#include "tests/temporary_directory.h"
#include "tests/tiny_models.h"
#include "tests/uptrain/golden_case.h"
#include "tests/uptrain/never_stopped.h"
#include "tests/uptrain/taught_run.h"
#include "tests/uptrain/token_text.h"
#include "uptrain/model/parameters.h"
#include "uptrain/run/training_memory.h"
#include "uptrain/train/refit.h"
#include "uptrain/train/sensitivity.h"
#include "uptrain/train/text_quality.h"

namespace regroup {
namespace {

namespace fs = std::filesystem;

// What each step did on the device, from the end of the step before.
class Counting : public UptrainObserver {
 public:
  void on_start(const TrainingProgress&) override { reset_paper_counts(); }
  void on_step(const StepReport& report) override {
    losses.push_back(report.loss);
    steps.push_back(paper_counts());
    reset_paper_counts();
  }

  std::vector<double> losses;
  std::vector<PaperCounts> steps;
};

UptrainResult run(const UptrainSettings& settings, UptrainObserver& observer) {
  const Model source = open_computable_model(settings.model);
  const DataLoader data = open_training_data(settings, source.spec);
  return run_uptraining(plan_uptraining(settings, source, data), source, data, /*resume=*/false,
                        observer, kNeverStopped);
}

struct Mode {
  const char* name;
  std::function<void(UptrainSettings&, const fs::path&)> set;
};

const std::vector<Mode> kModes = {
    {"all weights", [](UptrainSettings&, const fs::path&) {}},
    {"bf16", [](UptrainSettings& run, const fs::path&) { run.precision = Precision::kBf16; }},
    {"bf16 moments",
     [](UptrainSettings& run, const fs::path&) { run.optimizer.moments = Precision::kBf16; }},
    {"Adafactor",
     [](UptrainSettings& run, const fs::path&) { run.optimizer.kind = OptimizerKind::kAdafactor; }},
    {"activation checkpointing",
     [](UptrainSettings& run, const fs::path&) { run.recomputing = true; }},
    {"keys and values only",
     [](UptrainSettings& run, const fs::path&) { run.trained = TrainedWeights::kKeysAndValues; }},
    {"attention only",
     [](UptrainSettings& run, const fs::path&) { run.trained = TrainedWeights::kAttention; }},
    {"separate documents",
     [](UptrainSettings& run, const fs::path&) {
       run.documents = {.separate = true, .mark = DocumentMark{.token = 3}};
     }},
    {"teacher",
     [](UptrainSettings& run, const fs::path&) {
       run.teacher.model = golden("llama_bf16");
       run.teacher.distillation = {0.7, 2.0};
     }},
    {"teacher's attention",
     [](UptrainSettings& run, const fs::path&) {
       run.teacher.model = golden("llama_bf16");
       run.teacher.attention_weight = 2.0;
     }},
    {"teacher's attention, recomputed",
     [](UptrainSettings& run, const fs::path&) {
       run.teacher.model = golden("llama_bf16");
       run.teacher.attention_weight = 2.0;
       run.recomputing = true;
     }},
    {"stored teacher logits",
     [](UptrainSettings& run, const fs::path& directory) {
       run.teacher.distillation = {0.7, 2.0};
       make_answers(settings_for(run, golden("llama_bf16"), 24, 8), directory / "answers");
       run.teacher.logits = directory / "answers";
     }},
};

// Random weights in the config of tests/golden's llama, widened.
fs::path put_wide_llama(const fs::path& directory) {
  return put_random_llama(directory,
                          R"({"hidden_size": 256, "num_attention_heads": 8, "head_dim": 32,
      "num_key_value_heads": 2, "intermediate_size": 512, "num_hidden_layers": 6,
      "vocab_size": 4000, "max_position_embeddings": 512})");
}

// A mixture of eight experts, two for each token, of the same width.
fs::path put_wide_olmoe(const fs::path& directory) {
  Json config = Json::parse(golden_model("olmoe").config);
  config.update(Json::parse(R"({"hidden_size": 256, "num_attention_heads": 8,
      "num_key_value_heads": 2, "intermediate_size": 256, "num_hidden_layers": 6, "num_experts": 8,
      "num_experts_per_tok": 2, "vocab_size": 4000, "max_position_embeddings": 512})"));
  write_new_model({config.dump(), "config.json"}, 3, DType::kF32, directory);
  return directory;
}

void put_tokens(const Model& source, const fs::path& path, std::size_t count) {
  put_file(path, bytes_of_numbers(
                     learnable_text(count, static_cast<std::uint16_t>(source.spec.vocab_size))));
}

}  // namespace

TEST_CASE("uptraining on paper in every mode: the CPU's losses, one wait a step", "[paper]") {
  const Mode mode = GENERATE(from_range(kModes));
  const bool fused = GENERATE(false, true);
  CAPTURE(mode.name, fused);
  set_paper_kernels(fused);
  const TemporaryDirectory directory;
  UptrainSettings settings = short_run(directory.path(), "llama", 4);
  mode.set(settings, directory.path());
  UptrainObserver silent;
  Counting here, there;
  run(settings, here);
  settings.device = paper_device();
  settings.output = directory / "there";
  run(settings, there);
  REQUIRE(there.losses.size() == here.losses.size());
  const double tolerance = settings.precision == Precision::kBf16 ? 2e-2 : 1e-5;
  for (std::size_t i = 0; i < here.losses.size(); ++i) {
    CAPTURE(i);
    CHECK(std::abs(there.losses[i] - here.losses[i]) < tolerance * here.losses[i]);
  }
  const bool adamw = settings.optimizer.kind == OptimizerKind::kAdamW;
  CHECK(there.steps.at(1).operators.contains("regroup::adamw") == (fused && adamw));
  for (std::size_t i = 1; i < there.steps.size(); ++i) {  // tables are made in the first
    CAPTURE(i, there.steps[i].waiting);
    CHECK(there.steps[i].waits == 1);
    CHECK(there.steps[i].downloads == 1);
    CHECK(there.steps[i].uploads == settings.accumulation);
  }
}

TEST_CASE("uptraining on paper takes no more memory than its plan says", "[paper]") {
  const TemporaryDirectory directory;
  UptrainSettings settings = short_run(directory.path(), "llama", 2);
  const bool sparse = GENERATE(false, true);
  settings.model =
      sparse ? put_wide_olmoe(directory / "model") : put_wide_llama(directory / "model");
  put_tokens(open_computable_model(settings.model), settings.data.front(), 20'000);
  settings.sequence_length = 128;
  settings.batch = 4;
  settings.accumulation = GENERATE(1, 2);
  settings.precision = GENERATE(Precision::kFp32, Precision::kBf16);
  settings.recomputing = GENERATE(false, true);
  settings.device = paper_device();
  const bool taught = GENERATE(false, true), fused = GENERATE(false, true);
  if (sparse && (taught || settings.accumulation > 1)) {
    return;  // as in other models
  }
  set_paper_kernels(fused);
  if (taught) {
    settings.teacher.model = settings.model;
  }
  CAPTURE(sparse, settings.accumulation, name_of(settings.precision), settings.recomputing, taught,
          fused);
  const Model source = open_computable_model(settings.model);
  const DataLoader data = open_training_data(settings, source.spec);
  const UptrainPlan plan = plan_uptraining(settings, source, data);
  UptrainObserver silent;
  auto* allocator = c10::getDeviceAllocator(paper_device().type());
  allocator->resetPeakStats(0);
  const double before = peak_memory(paper_device());
  run_uptraining(plan, source, data, /*resume=*/false, silent, kNeverStopped);
  const double peak = peak_memory(paper_device()) - before;
  TrainingMemory planned =
      training_memory(settings, source.spec, plan.task, *settings.sequence_length);
  if (taught) {
    planned.teacher = teacher_bytes(settings, source.spec, plan.task, *settings.sequence_length);
  }
  CAPTURE(planned.weights, planned.masters, planned.gradients, planned.optimizer,
          planned.activations, planned.logits);
  CHECK(peak <= planned.total());
  CHECK(peak >= 0.7 * planned.total());
}

TEST_CASE("refitting on paper gives the CPU's weights", "[paper]") {
  const TemporaryDirectory directory;
  const auto* name = GENERATE("llama_mha", "bloom", "gpt2", "t5");
  CAPTURE(name);
  const GoldenCase golden = load_golden_case(name);
  put_tokens(golden.source, directory / "tokens", 1024);
  const TokenFile data = TokenFile::open(directory / "tokens");
  const auto errors_on = [&](at::Device device) {
    RefitSettings settings;
    settings.windows = {.context = 16, .batch = 8, .max_tokens = 1024};
    settings.steps = 10;
    settings.device = device;
    ConversionRequest half;
    half.kv_heads = {golden.source.spec.kv_heads.front() / 2};
    half.dtype = DType::kF32;
    half.refiner = std::make_shared<Refit>(golden.source, data, settings, kNeverStopped);
    const fs::path output = directory / (device.is_cpu() ? "here" : "there");
    std::vector<double> errors;
    for (const LayerReport& layer : execute_conversion(
             plan_conversion(golden.source, half), golden.source, output, [](auto, auto) {},
             kNeverStopped)) {
      errors.push_back(layer.refinement->error_after);
    }
    return errors;
  };
  const auto here = errors_on(c10::kCPU), there = errors_on(paper_device());
  REQUIRE(there.size() == here.size());
  for (std::size_t i = 0; i < here.size(); ++i) {
    CHECK(std::abs(there[i] - here[i]) < 1e-3 * here[i]);
  }
}

TEST_CASE("predictions compared on paper differ as on the CPU", "[paper]") {
  const Model source = open_model(golden("llama")), other = open_model(golden("llama_bf16"));
  const Batches windows =
      random_windows(source.spec.vocab_size, {.context = 12, .batch = 2, .max_tokens = 96});
  const auto kl_on = [&](at::Device device) {
    return compare_predictions(
               source, other, windows, device, [](std::size_t) {}, kNeverStopped)
        .kl;
  };
  const double here = kl_on(c10::kCPU);
  CHECK(here > 0.0);
  CHECK(std::abs(kl_on(paper_device()) - here) < 1e-5 * here);
}

TEST_CASE("a layer's sensitivity on paper is that of the CPU", "[paper]") {
  const TemporaryDirectory directory;
  const auto* name = GENERATE("llama_mha", "bloom", "mistral");
  CAPTURE(name);
  const GoldenCase golden = load_golden_case(name);
  put_tokens(golden.source, directory / "tokens", 200);
  ConversionRequest request;
  request.kv_heads = {golden.source.spec.kv_heads.front() / 2};
  const auto measured = [&](at::Device device) {
    return measure_sensitivity(
        golden.source, request, TokenFile::open(directory / "tokens"),
        {.context = 12, .batch = 2, .max_tokens = 96}, device, [](std::size_t) {}, kNeverStopped);
  };
  const auto here = measured(c10::kCPU), there = measured(paper_device());
  REQUIRE(there.size() == here.size());
  for (std::size_t i = 0; i < here.size(); ++i) {
    CHECK(std::abs(there[i].divergence - here[i].divergence) < 1e-4 * here[i].divergence);
  }
}

TEST_CASE("a teacher on paper answers as on the CPU", "[paper]") {
  const TemporaryDirectory directory;
  UptrainSettings run = short_run(directory.path(), "llama", 4);
  make_answers(settings_for(run, run.model, 6, 8), directory / "here");
  run.device = paper_device();
  make_answers(settings_for(run, run.model, 6, 8), directory / "there");
  const DataLoader data = open_training_data(run, open_computable_model(run.model).spec);
  const TopKLogits here = TeacherLogitsCache::open(directory / "here").read(data.batch(0, 6), 0);
  const TopKLogits there = TeacherLogitsCache::open(directory / "there").read(data.batch(0, 6), 0);
  CHECK(largest_difference(there.log_probabilities, here.log_probabilities) < 5e-3);  // fp16
}

}  // namespace regroup
