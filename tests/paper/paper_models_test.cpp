// Every family on the paper device: the numbers of the CPU, and nothing that would be slow or fail
// on a GPU.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <string>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <fmt/format.h>

#include "formats/base/json.h"
#include "tests/file_tree.h"
#include "tests/paper/paper_device.h"
#include "tests/paper/paper_fused.h"
#include "tests/temporary_directory.h"
#include "tests/tiny_models.h"
#include "tests/uptrain/golden_case.h"
#include "tests/uptrain/never_stopped.h"
#include "tests/uptrain/token_text.h"
#include "uptrain/model/decode.h"
#include "uptrain/model/device_graph.h"
#include "uptrain/model/parameters.h"
#include "uptrain/train/objective.h"
#include "uptrain/train/trained_weights.h"
#include "uptrain/train/training_loss.h"

namespace regroup {
namespace {

// A family with heads of 16 dimensions, as wide as the kernels of GPUs want them: 4 query heads,
// and 4, 2 or 1 kv heads where the family has such.
struct Family {
  const char* fixture;
  const char* sizes;     // of config.json
  const char* kv_heads;  // its key; empty: as the fixture has them
};

constexpr const char* kSizes = R"({"hidden_size": 64, "num_attention_heads": 4})";
constexpr const char* kSizesWithHeadDim =
    R"({"hidden_size": 64, "num_attention_heads": 4, "head_dim": 16})";

const std::vector<Family> kFamilies = {
    {"llama", kSizesWithHeadDim, "num_key_value_heads"},
    {"mistral", kSizesWithHeadDim, "num_key_value_heads"},  // a window of 5
    {"qwen2", kSizes, "num_key_value_heads"},
    {"qwen3", kSizesWithHeadDim, "num_key_value_heads"},
    {"gemma", kSizesWithHeadDim, "num_key_value_heads"},
    {"olmo2", kSizes, "num_key_value_heads"},
    {"olmoe", kSizes, "num_key_value_heads"},
    {"phi", kSizes, "num_key_value_heads"},
    {"phi3", kSizes, "num_key_value_heads"},
    {"cohere", kSizes, "num_key_value_heads"},
    {"granite", kSizes, "num_key_value_heads"},
    {"smollm3", kSizes, "num_key_value_heads"},
    {"olmo3", kSizes, "num_key_value_heads"},  // windows of 5 in some layers, as the next three
    {"gemma2", kSizesWithHeadDim, "num_key_value_heads"},
    {"gemma3", kSizesWithHeadDim, "num_key_value_heads"},
    {"cohere2", kSizesWithHeadDim, "num_key_value_heads"},
    {"gpt_neo", R"({"hidden_size": 64, "num_heads": 4})", ""},
    {"nemotron", kSizesWithHeadDim, "num_key_value_heads"},
    {"stablelm", R"({"hidden_size": 64, "num_attention_heads": 4, "partial_rotary_factor": 0.5})",
     "num_key_value_heads"},
    {"starcoder2", kSizes, "num_key_value_heads"},
    {"falcon_40b", kSizes, "num_kv_heads"},
    {"gpt2", R"({"n_embd": 64, "n_head": 4})", ""},
    {"gpt_bigcode", R"({"n_embd": 64, "n_head": 4})", ""},  // one kv head
    {"gpt_neox", R"({"hidden_size": 64, "num_attention_heads": 4, "rotary_pct": 0.5})", ""},
    {"gptj", R"({"n_embd": 64, "n_head": 4, "rotary_dim": 8})", ""},
    {"bloom", R"({"hidden_size": 64, "n_head": 4})", ""},
    {"mpt", R"({"d_model": 64, "n_heads": 4})", ""},
    {"opt", R"({"hidden_size": 64, "num_attention_heads": 4, "word_embed_proj_dim": 64})", ""},
    {"t5_v1_1", R"({"d_model": 64, "num_heads": 4, "d_kv": 16})", ""},
    {"umt5", R"({"d_model": 64, "num_heads": 4, "d_kv": 16})", ""},
    {"bert", kSizes, ""},
};

// Writes the family's model with random weights and `kv_heads` of its 4 heads.
Model make_model(const TemporaryDirectory& directory, const Family& family, int kv_heads) {
  Json config = Json::parse(golden_model(family.fixture).config);
  config.update(Json::parse(family.sizes));
  if (*family.kv_heads != '\0') {
    config[family.kv_heads] = kv_heads;
  }
  write_new_model({config.dump(), "config.json"}, 3, DType::kF32, directory / "model");
  return open_model(directory / "model");
}

struct TrainingPass {
  double loss = 0.0;
  std::vector<at::Tensor> gradients;
};

// Loss and gradients of one micro-batch. On paper, reads the counts before the figures are read.
TrainingPass train_once(const Model& source, const at::Tensor& windows, at::ScalarType type,
                        at::Device device, bool recomputing, PaperCounts* counts = nullptr) {
  const Parameters parameters = load_parameters(source.spec, source.checkpoint, type, device);
  Transformer model(source.spec, parameters);
  model.set_recomputing(recomputing);
  parameters.require_gradients();
  const Objective objective = training_objective_of(source.spec);
  const Task task{objective, objective == Objective::kSpanCorruption
                                 ? Hiding{.token = 30, .seed = 1}
                                 : Hiding{.token = 3}};
  TrainingLoss loss(model, task);
  RouterBalance balance(model);
  if (has_balance_loss(source.spec)) {
    loss.set_router_balance(balance);
  }
  GradientSum(parameters.tensors()).add(loss(windows, 0));  // tables are made once
  reset_paper_counts();
  GradientSum gradients(parameters.tensors());
  const at::Tensor value = loss(windows, 0);
  gradients.add(value);
  if (counts != nullptr) {
    *counts = paper_counts();
  }
  return {value.item<double>(), gradients.sums()};
}

double relative_error(const std::vector<at::Tensor>& one, const std::vector<at::Tensor>& other) {
  double error = 0.0, norm = 0.0;
  for (std::size_t i = 0; i < one.size(); ++i) {
    const at::Tensor exact = other[i].to(at::kCPU, at::kDouble);
    error += (one[i].to(at::kCPU, at::kDouble) - exact).square().sum().item<double>();
    norm += exact.square().sum().item<double>();
  }
  return std::sqrt(error / norm);
}

// The sum of the launches of fused kernels.
std::int64_t fused_launches(const PaperCounts& counts) {
  std::int64_t sum = 0;
  for (const auto& [name, launches] : counts.operators) {
    sum += name.starts_with("regroup::") ? launches : 0;
  }
  return sum;
}

std::int64_t layers_with_experts(const ModelSpec& spec) {
  return std::count_if(spec.layers.begin(), spec.layers.end(),
                       [](const LayerTensors& layer) { return layer.experts.present(); });
}

at::Tensor windows_for(const ModelSpec& spec, std::int64_t length) {
  return (at::arange(2 * (length + 1), at::kLong) * 7 % (spec.vocab_size - 12) + 4)
      .view({2, length + 1});
}

}  // namespace

TEST_CASE("training passes of all families on paper equal those on the CPU", "[paper]") {
  const Family family = GENERATE(from_range(kFamilies));
  const int kv_heads = GENERATE(4, 2, 1);
  if (kv_heads != 4 && *family.kv_heads == '\0') {
    return;
  }
  const bool recomputing = GENERATE(false, true), fused = GENERATE(false, true);
  const auto type = GENERATE(at::kFloat, at::kBFloat16);
  CAPTURE(family.fixture, kv_heads, recomputing, fused, c10::toString(type));
  set_paper_kernels(fused);
  const TemporaryDirectory directory;
  const Model source = make_model(directory, family, kv_heads);
  const at::Tensor windows = windows_for(source.spec, 12);
  PaperCounts counts;
  const TrainingPass there =
      train_once(source, windows, type, paper_device(), recomputing, &counts);
  const TrainingPass here = train_once(source, windows, type, c10::kCPU, recomputing);
  const bool narrow = type == at::kBFloat16;
  CHECK(std::abs(there.loss - here.loss) < (narrow ? 2e-2 : 1e-5) * here.loss);
  CHECK(relative_error(there.gradients, here.gradients) < (narrow ? 5e-2 : 1e-4));
  CHECK((fused_launches(counts) > 0) == fused);
  CHECK(counts.uploads == 1);
  // The numbers of tokens per expert, which the host needs to slice them; again where recomputed.
  const std::int64_t sizes = layers_with_experts(source.spec) * (recomputing ? 2 : 1);
  CHECK(counts.waits == sizes);
  CHECK(counts.downloads == sizes);
  CAPTURE(counts.math_attentions);
  CHECK(counts.math_attentions.empty());
  // No fused kernel computes soft-capped scores: they are taken in blocks, see attention.h.
  CHECK((counts.fused_attentions > 0) == !source.spec.attention_softcap.has_value());
}

TEST_CASE("decoding and chunks of a prompt on paper use fused attention and give the CPU's logits",
          "[paper]") {
  const at::NoGradGuard no_gradients;
  const Family family = GENERATE(from_range(kFamilies));
  const int kv_heads = GENERATE(4, 2, 1);
  if (kv_heads != 4 && *family.kv_heads == '\0') {
    return;
  }
  CAPTURE(family.fixture, kv_heads);
  const TemporaryDirectory directory;
  const Model source = make_model(directory, family, kv_heads);
  if (!source.spec.causal || source.spec.has_encoder()) {
    return;
  }
  const at::Tensor tokens = windows_for(source.spec, 13).narrow(1, 0, 12).contiguous();
  const auto last_logits = [&](at::Device device, std::int64_t chunk) {
    const Transformer model = load_transformer(source, at::kFloat, device);
    KvCache cache = model.make_cache({.batch = 2, .capacity = 16, .window = {}});
    return read_tokens(model, tokens.to(device), cache, chunk).cpu();
  };
  for (const std::int64_t chunk : {1, 4, 12}) {
    CAPTURE(chunk);
    reset_paper_counts();
    const at::Tensor there = last_logits(paper_device(), chunk);
    CAPTURE(paper_counts().math_attentions);
    CHECK(paper_counts().math_attentions.empty());
    CHECK(largest_difference(there, last_logits(c10::kCPU, chunk)) < 1e-4);
  }
}

// What the test above decodes, and encoder-decoders.
TEST_CASE("rounds of decoding on paper can be recorded as graphs and repeated", "[paper]") {
  const Family family = GENERATE(from_range(kFamilies));
  const int kv_heads = GENERATE(4, 2, 1);
  if (kv_heads != 4 && *family.kv_heads == '\0') {
    return;
  }
  const auto type = GENERATE(at::kFloat, at::kBFloat16);
  CAPTURE(family.fixture, kv_heads, c10::toString(type));
  set_paper_kernels(true);
  const TemporaryDirectory directory;
  const Model source = make_model(directory, family, kv_heads);
  if (!source.spec.causal) {
    return;
  }
  const Parameters parameters =
      load_parameters(source.spec, source.checkpoint, type, paper_device());
  const std::vector<DecodeVariant> variants = {
      make_decode_variant(family.fixture, source.spec, parameters)};
  const std::atomic<bool> stop = false;
  // A model's own window drops tokens once it is full: such rounds differ.
  DecodeLoad load;
  load.batch = 2;
  load.context = 3;
  load.tokens = 4;
  load.rounds = 2;
  const bool drops = source.spec.sliding_window && *source.spec.sliding_window < 7 &&
                     !source.spec.windows_differ();
  const bool waits = layers_with_experts(source.spec) > 0;
  const DecodeSpeed speed = measure_decoding(variants, load, stop).front();
  CAPTURE(speed.graph_obstacle.value_or(""));
  CHECK(speed.graph_obstacle.has_value() == (drops || waits));
}

TEST_CASE("what a GPU cannot record is an obstacle on paper, and what changes is an error",
          "[paper]") {
  const at::Tensor x = at::ones({2}, at::TensorOptions().device(paper_device()));
  const GraphRecording waits =
      record_graph(paper_device(), [&] { static_cast<void>(x.sum().item<float>()); });
  CHECK(waits.replay == nullptr);
  CHECK(!waits.obstacle.empty());
  int calls = 0;
  const GraphRecording changes = record_graph(paper_device(), [&] {
    x.add_(1.0);
    if (++calls == 3) {  // the first replay
      x.add_(1.0);
    }
  });
  REQUIRE(changes.replay != nullptr);
  CHECK_THROWS_AS(changes.replay(), c10::Error);
  CHECK(record_graph(c10::kCPU, [] {}).replay == nullptr);
}

TEST_CASE("windows on paper use fused attention, in memory that grows with the length", "[paper]") {
  const auto type = GENERATE(at::kFloat, at::kBFloat16);
  const std::int64_t groups = GENERATE(4, 2, 1), width = GENERATE(5, 100, 128, 129);
  CAPTURE(c10::toString(type), groups, width);
  SlidingWindow there(width, at::TensorOptions(type).device(paper_device()));
  SlidingWindow here(width, at::TensorOptions(type));
  auto* allocator = c10::getDeviceAllocator(paper_device().type());
  const auto bytes_and_error = [&](std::int64_t length) {
    const auto draw = [&](std::int64_t heads) {
      return at::randn({1, heads, length, 16}, at::TensorOptions(type));
    };
    const Heads host = {draw(4), draw(groups), draw(groups)};
    const auto leaf = [](const at::Tensor& x) { return x.to(paper_device()).requires_grad_(); };
    const Heads device = {leaf(host.q), leaf(host.k), leaf(host.v)};
    allocator->resetPeakStats(0);
    const double before = peak_memory(paper_device());
    GradientSum gradients({device.q, device.k, device.v});
    const at::Tensor mixed = attend_in_window(device, there);
    gradients.add(mixed.to(at::kFloat).square().sum());
    const double bytes = peak_memory(paper_device()) - before;
    return std::pair{bytes, largest_difference(mixed.detach().cpu(), attend_in_window(host, here))};
  };
  bytes_and_error(300);  // makes the masks
  reset_paper_counts();
  const auto [shorter, error] = bytes_and_error(512);
  CHECK(error < (type == at::kFloat ? 1e-5 : 3e-2));
  CHECK(bytes_and_error(2048).first < 6 * shorter);  // 16 times for a square
  CAPTURE(paper_counts().math_attentions);
  CHECK(paper_counts().math_attentions.empty());
}

TEST_CASE("training any family on paper takes no more memory than its plan says", "[paper]") {
  const Family family = GENERATE(from_range(kFamilies));
  const int kv_heads = *family.kv_heads == '\0' ? 4 : GENERATE(4, 1);
  set_paper_kernels(true);
  const TemporaryDirectory directory;
  const Model source = make_model(directory, family, kv_heads);
  UptrainSettings settings = short_run(directory.path(), family.fixture, 2);
  put_file(settings.data.front(), bytes_of_numbers(learnable_text(2000, 32)));
  settings.model = directory / "model";
  settings.batch = 64;  // what passes keep is most of the memory
  settings.accumulation = 1;
  settings.precision = GENERATE(Precision::kFp32, Precision::kBf16);
  settings.recomputing = GENERATE(false, true);
  settings.device = paper_device();
  settings.task.mask_token = 3;
  if (source.spec.has_encoder()) {
    settings.task.objective = Objective::kContinuation;
  }
  const DataLoader data = open_training_data(settings, source.spec);
  const UptrainPlan plan = plan_uptraining(settings, source, data);
  auto* allocator = c10::getDeviceAllocator(paper_device().type());
  allocator->resetPeakStats(0);
  const double before = peak_memory(paper_device());
  UptrainObserver silent;
  run_uptraining(plan, source, data, /*resume=*/false, silent, kNeverStopped);
  const double share = (peak_memory(paper_device()) - before) / plan.memory.total();
  CAPTURE(family.fixture, kv_heads, settings.recomputing, name_of(settings.precision));
  // The plan leaves out the statistics of rows and the scores of soft-capped blocks of queries.
  // With heads as small as these they show.
  CHECK(share <= (source.spec.attention_softcap ? 1.1 : 1.05));
}

// test_paper "[table]" prints the table of docs/gpu.md.
TEST_CASE("prints launches of a training pass by family", "[.][table]") {
  std::string table =
      "| Family | kv heads of 4 | fp32 | bf16 | With checkpointing, bf16 | fp32, fused | bf16, "
      "fused "
      "| With checkpointing, bf16, fused | Of these fused, bf16 | Attentions fused | by products | "
      "Uploads | Waits |\n|---|---|---|---|---|---|---|---|---|---|---|---|---|\n";
  for (const Family& family : kFamilies) {
    for (const int kv_heads : {4, 2, 1}) {
      if (kv_heads != 4 && *family.kv_heads == '\0') {
        continue;
      }
      const TemporaryDirectory directory;
      const Model source = make_model(directory, family, kv_heads);
      const at::Tensor windows = windows_for(source.spec, 12);
      PaperCounts wide, narrow, again;
      table += fmt::format("| {} | {} |", family.fixture, source.spec.kv_heads.front());
      for (const bool fused : {false, true}) {
        set_paper_kernels(fused);
        train_once(source, windows, at::kFloat, paper_device(), false, &wide);
        train_once(source, windows, at::kBFloat16, paper_device(), false, &narrow);
        train_once(source, windows, at::kBFloat16, paper_device(), true, &again);
        table += fmt::format(" {} | {} | {} |", wide.launches, narrow.launches, again.launches);
      }
      table += fmt::format(" {} | {} | {} | {} | {} |\n", fused_launches(narrow),
                           narrow.fused_attentions, narrow.math_attentions.size(), narrow.uploads,
                           narrow.waits);
    }
  }
  fmt::print("{}", table);
}

// test_paper "[decode-table]" prints the table of launches per token in docs/gpu.md.
TEST_CASE("prints launches of decoding by family", "[.][decode-table]") {
  const at::NoGradGuard no_gradients;
  set_paper_kernels(true);
  for (const Family& family : kFamilies) {
    const TemporaryDirectory directory;
    const Model source = make_model(directory, family, 4);
    if (!source.spec.causal || source.spec.has_encoder()) {
      continue;
    }
    const Transformer model = load_transformer(source, at::kBFloat16, paper_device());
    KvCache cache = model.make_cache({.batch = 2, .capacity = 64, .window = {}});
    at::Tensor logits =
        read_tokens(model, windows_for(source.spec, 12).to(paper_device()), cache, 13);
    decode_greedily(model, logits, cache, 1);
    reset_paper_counts();
    decode_greedily(model, logits, cache, 1);
    fmt::print("| {} | {} |\n", family.fixture, paper_counts().launches);
  }
}

}  // namespace regroup
