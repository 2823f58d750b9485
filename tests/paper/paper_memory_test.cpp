// Memory modes on the paper device: the CPU's losses, waits and copies of a step, and peak memory
// compared with the plan.
#include <algorithm>
#include <cmath>
#include <filesystem>

#include <c10/core/CachingDeviceAllocator.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <fmt/format.h>

#include "formats/base/json.h"
#include "tests/file_tree.h"
#include "tests/paper/paper_device.h"
#include "tests/temporary_directory.h"
#include "tests/tiny_models.h"
#include "tests/uptrain/golden_case.h"
#include "tests/uptrain/never_stopped.h"
#include "tests/uptrain/token_text.h"
#include "uptrain/model/parameters.h"
#include "uptrain/run/training_memory.h"
#include "uptrain/train/trained_weights.h"

namespace regroup {
namespace {

namespace fs = std::filesystem;

struct StepCounts : UptrainObserver {
  void on_start(const TrainingProgress&) override { reset_paper_counts(); }
  void on_step(const StepReport& report) override {
    losses.push_back(report.loss);
    norms.push_back(report.gradient_norm);
    steps.push_back(paper_counts());
    reset_paper_counts();
  }

  std::vector<double> losses, norms;
  std::vector<PaperCounts> steps;
};

UptrainPlan run_planned(const UptrainSettings& settings, UptrainObserver& observer) {
  const Model source = open_computable_model(settings.model);
  const DataLoader data = open_training_data(settings, source.spec);
  UptrainPlan plan = plan_uptraining(settings, source, data);
  run_uptraining(plan, source, data, /*resume=*/false, observer, kNeverStopped);
  return plan;
}

void check_relative(const std::vector<double>& values, const std::vector<double>& expected,
                    double tolerance) {
  REQUIRE(values.size() == expected.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    CAPTURE(i);
    CHECK(std::abs(values[i] - expected[i]) < tolerance * expected[i]);
  }
}

// A model whose weights take far more memory than its activations. No tensor is much larger than
// the others.
fs::path put_heavy_llama(const fs::path& directory) {
  return put_random_llama(directory,
                          R"({"hidden_size": 256, "num_attention_heads": 4, "head_dim": 64,
      "num_key_value_heads": 2, "intermediate_size": 768, "num_hidden_layers": 12,
      "vocab_size": 400, "max_position_embeddings": 512})");
}

double peak_of(const UptrainSettings& settings, UptrainPlan& plan) {
  auto* allocator = c10::getDeviceAllocator(paper_device().type());
  allocator->resetPeakStats(0);
  const double before = peak_memory(paper_device());
  UptrainObserver silent;
  plan = run_planned(settings, silent);
  return peak_memory(paper_device()) - before;
}

struct LlamaSize {
  const char* name;
  std::int64_t hidden, layers, heads, intermediate;
};

const LlamaSize kLlamas[] = {{"Llama-2-7B", 4096, 32, 32, 11008},
                             {"Llama-2-13B", 5120, 40, 40, 13824},
                             {"Llama-2-70B", 8192, 80, 64, 28672}};

// A config.json without weights.
ModelSpec spec_of(const LlamaSize& size, const fs::path& directory) {
  Json config = Json::parse(golden_model("llama").config);
  config.update({{"hidden_size", size.hidden},
                 {"num_hidden_layers", size.layers},
                 {"num_attention_heads", size.heads},
                 {"num_key_value_heads", 8},
                 {"head_dim", 128},
                 {"intermediate_size", size.intermediate},
                 {"vocab_size", 32000},
                 {"max_position_embeddings", 4096}});
  put_file(directory / "config.json", config.dump());
  return open_model_outline(directory).spec;
}

UptrainSettings heavy_run(const fs::path& directory) {
  UptrainSettings settings = short_run(directory, "llama", 2);
  settings.model = put_heavy_llama(directory / "model");
  put_file(settings.data.front(), bytes_of_numbers(learnable_text(2000, 400)));
  settings.sequence_length = 16;
  settings.batch = 1;
  settings.accumulation = 1;
  settings.recomputing = true;
  settings.device = paper_device();
  return settings;
}

}  // namespace

TEST_CASE("memory modes on paper have the CPU's losses, and one wait a step", "[paper]") {
  const TemporaryDirectory directory;
  UptrainSettings settings = short_run(directory.path(), "llama", 4);
  settings.accumulation = GENERATE(1, 2);
  settings.precision = GENERATE(Precision::kFp32, Precision::kBf16);
  const MemoryMode mode = GENERATE(MemoryMode::kCompact, MemoryMode::kHost);
  const bool narrow = settings.precision == Precision::kBf16;
  if (mode == MemoryMode::kCompact && !narrow) {
    return;
  }
  settings.optimizer.kind = GENERATE(OptimizerKind::kAdamW, OptimizerKind::kAdafactor);
  settings.trained = GENERATE(TrainedWeights::kAll, TrainedWeights::kKeysAndValues);
  CAPTURE(name_of(mode), name_of(settings.precision), settings.accumulation,
          name_of(settings.optimizer.kind), name_of(settings.trained));
  StepCounts here, there;
  run_planned(settings, here);
  settings.device = paper_device();
  settings.memory = mode;
  settings.output = directory / "there";
  run_planned(settings, there);
  check_relative(there.losses, here.losses, narrow ? 2e-2 : 1e-5);
  check_relative(there.norms, here.norms, narrow ? 5e-2 : 1e-4);
  const auto tensors = static_cast<std::int64_t>(
      trained_tensors(load_golden_case("llama").source.spec, settings.trained).size());
  const std::int64_t batches = settings.accumulation;
  for (std::size_t i = 1; i < there.steps.size(); ++i) {
    CAPTURE(i, there.steps[i].waiting);
    const bool on_host = mode == MemoryMode::kHost;
    // The host can add a batch's gradients only when they have arrived.
    CHECK(there.steps[i].waits == (on_host ? batches : 1));
    CHECK(there.steps[i].downloads == (on_host ? batches * tensors + 1 : 1));
    CHECK(there.steps[i].uploads == batches + (on_host ? tensors : 0));
  }
}

TEST_CASE("a run with its masters on the host resumes to the same bytes and in other modes",
          "[paper]") {
  const TemporaryDirectory directory;
  UptrainSettings settings = short_run(directory.path(), "llama", 5);
  settings.precision = Precision::kBf16;
  settings.device = paper_device();
  settings.memory = MemoryMode::kHost;
  run_to_end(settings);
  settings.output = directory / "stopped";
  CHECK(run_until(settings, 3).kind() == ErrorKind::kInterruptedSaved);
  run_to_end(settings, /*resume=*/true);
  CHECK(tree_of(settings.output) == tree_of(directory / "out"));

  settings.output = directory / "changed";
  CHECK(run_until(settings, 2).kind() == ErrorKind::kInterruptedSaved);
  settings.memory = MemoryMode::kCompact;
  CHECK(run_until(settings, 4, /*resume=*/true).kind() == ErrorKind::kInterruptedSaved);
  settings.memory = MemoryMode::kFull;
  CHECK(run_to_end(settings, /*resume=*/true).progress.step == 5);
}

TEST_CASE("peak memory on paper is what the plan says, in every memory mode", "[paper]") {
  const TemporaryDirectory directory;
  UptrainSettings settings = heavy_run(directory.path());
  settings.precision = GENERATE(Precision::kBf16, Precision::kFp32);
  settings.memory = GENERATE(MemoryMode::kFull, MemoryMode::kCompact, MemoryMode::kHost);
  settings.optimizer.moments = GENERATE(Precision::kFp32, Precision::kBf16);
  settings.accumulation = GENERATE(1, 2);
  if (settings.memory == MemoryMode::kCompact && settings.precision == Precision::kFp32) {
    return;
  }
  CAPTURE(name_of(*settings.memory), name_of(settings.precision),
          name_of(settings.optimizer.moments), settings.accumulation);
  UptrainPlan plan;
  const double peak = peak_of(settings, plan);
  const TrainingMemory& memory = plan.memory;
  CAPTURE(memory.weights, memory.masters, memory.gradients, memory.optimizer, memory.activations,
          memory.logits, memory.update, peak / memory.total());
  CHECK(peak <= 1.005 * memory.total());  // small tensors are rounded up to 512 bytes
  CHECK(peak >= 0.95 * memory.total());
}

TEST_CASE("peak memory of Adafactor on paper is within the plan", "[paper]") {
  const TemporaryDirectory directory;
  UptrainSettings settings = heavy_run(directory.path());
  settings.optimizer.kind = OptimizerKind::kAdafactor;
  settings.precision = Precision::kBf16;
  settings.memory = GENERATE(MemoryMode::kFull, MemoryMode::kCompact);
  UptrainPlan plan;
  const double peak = peak_of(settings, plan);
  CAPTURE(name_of(*settings.memory), plan.memory.update, peak / plan.memory.total());
  CHECK(peak <= plan.memory.total());
  CHECK(peak >= 0.95 * plan.memory.total());
}

TEST_CASE("memory modes of Llama 2 with 8 kv heads", "[paper][table]") {
  constexpr double kGiB = 1 << 30;
  const TemporaryDirectory directory;
  fmt::print(
      "\n| | moments | full | compact | host: GPU | host: main memory "
      "|\n|---|---|--:|--:|--:|--:|\n");
  for (const LlamaSize& size : kLlamas) {
    const ModelSpec spec = spec_of(size, directory / size.name);
    for (const Precision moments : {Precision::kFp32, Precision::kBf16}) {
      UptrainSettings settings;
      settings.batch = 1;
      settings.precision = Precision::kBf16;
      settings.recomputing = true;
      settings.optimizer.moments = moments;
      settings.device = paper_device();
      const auto need = [&](MemoryMode mode) {
        settings.memory = mode;
        return training_memory(settings, spec, {}, 2048);
      };
      const TrainingMemory full = need(MemoryMode::kFull), compact = need(MemoryMode::kCompact),
                           host = need(MemoryMode::kHost);
      fmt::print("| {} | {} | {:.1f} | {:.1f} | {:.1f} | {:.0f} |\n", size.name, name_of(moments),
                 full.total() / kGiB, compact.total() / kGiB, host.total() / kGiB,
                 host.host / kGiB);
      if (size.layers == 32 && moments == Precision::kBf16) {  // 7B on GPUs of 80 and of 24 GB
        CHECK(full.total() > 75 * kGiB);
        CHECK(compact.total() < 75 * kGiB);
        CHECK(host.total() < 22 * kGiB);
      }
    }
  }
}

TEST_CASE("memory of Llama 2 70B on ranks that share its weights", "[paper][table]") {
  constexpr double kGiB = 1 << 30;
  const TemporaryDirectory directory;
  const ModelSpec spec = spec_of(kLlamas[2], directory.path());
  fmt::print(
      "\n| trained | ranks | optimizer | full | full: weights | gradients | masters, moments "
      "|\n|---|--:|--:|--:|--:|--:|--:|\n");
  for (const TrainedWeights trained :
       {TrainedWeights::kAll, TrainedWeights::kAttention, TrainedWeights::kKeysAndValues}) {
    for (const std::int64_t ranks : {8, 16, 64}) {
      UptrainSettings settings;
      settings.batch = 1;
      settings.precision = Precision::kBf16;
      settings.recomputing = true;
      settings.optimizer.moments = Precision::kBf16;
      settings.device = paper_device();
      settings.ranks = settings.accumulation = ranks;
      settings.trained = trained;
      const TrainingMemory whole = training_memory(settings, spec, {}, 2048);
      settings.sharding.weights = true;
      const TrainingMemory shards = training_memory(settings, spec, {}, 2048);
      fmt::print("| {} | {} | {:.1f} | {:.1f} | {:.1f} | {:.1f} | {:.1f} |\n", name_of(trained),
                 ranks, whole.total() / kGiB, shards.total() / kGiB, shards.weights / kGiB,
                 shards.gradients / kGiB, (shards.masters + shards.optimizer) / kGiB);
      CHECK(whole.total() > 80 * kGiB);
      CHECK(shards.total() < whole.total() / 2);
    }
  }
}

TEST_CASE("planning takes the first memory mode that fits on paper", "[paper]") {
  const TemporaryDirectory directory;
  UptrainSettings settings = heavy_run(directory.path());
  settings.precision = Precision::kBf16;
  const Model source = open_computable_model(settings.model);
  const DataLoader data = open_training_data(settings, source.spec);
  const auto planned = [&] { return plan_uptraining(settings, source, data); };
  const UptrainPlan plenty = planned();
  CHECK(plenty.memory_choice.mode == MemoryMode::kFull);
  REQUIRE(plenty.memory_choice.options.size() == 3);
  const auto allow = [](double bytes) { set_paper_memory(std::llround(bytes)); };
  const auto& options = plenty.memory_choice.options;
  allow((options[0].need.device + options[1].need.device) / 2);
  CHECK(planned().memory_choice.mode == MemoryMode::kCompact);
  allow((options[1].need.device + options[2].need.device) / 2);
  const UptrainPlan on_host = planned();
  CHECK(on_host.memory_choice.mode == MemoryMode::kHost);
  CHECK(on_host.settings.memory == MemoryMode::kHost);
  CHECK(on_host.fits());
  settings.memory = MemoryMode::kFull;
  const UptrainPlan given = planned();
  CHECK_FALSE(given.fits());
  std::vector<std::string> suggested;
  for (const LeanerRun& leaner : given.shortage.value().leaner) {
    suggested.push_back(leaner.options);
  }
  CHECK(std::find(suggested.begin(), suggested.end(), "--memory host") != suggested.end());
  CHECK(std::find(suggested.begin(), suggested.end(), "--memory compact") == suggested.end());
  set_paper_memory(0);
}

}  // namespace regroup
