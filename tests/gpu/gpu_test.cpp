// Behaviour on a GPU compared with the CPU. Skipped without a GPU; bench/gpu.sh runs these tests.
#include <atomic>
#include <cstdlib>

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "converter/heads/calibration.h"
#include "formats/spec/alibi.h"
#include "tests/converter/pooling/small_attention.h"
#include "tests/file_tree.h"
#include "tests/paper/paper_device.h"
#include "tests/paper/paper_fused.h"
#include "tests/temporary_directory.h"
#include "tests/uptrain/distributed/free_port.h"
#include "tests/uptrain/golden_case.h"
#include "tests/uptrain/never_stopped.h"
#include "tests/uptrain/token_text.h"
#include "uptrain/distributed/process_group.h"
#include "uptrain/model/decode.h"
#include "uptrain/model/device_graph.h"
#include "uptrain/ops/kernel_check.h"
#include "uptrain/train/calibrate.h"
#include "uptrain/train/objective.h"
#include "uptrain/train/trained_weights.h"

namespace regroup {
namespace {

// The first GPU. Without one, the test is skipped. REGROUP_TEST_DEVICE=cpu or =paper checks the
// tests themselves.
at::Device gpu() {
  if (const char* named = std::getenv("REGROUP_TEST_DEVICE")) {
    if (std::string_view(named) == "paper") {
      set_paper_kernels(true);
      return paper_device();
    }
    return parse_device(named);
  }
  if (!at::globalContext().hasCUDA()) {
    SKIP("no GPU");
  }
  return parse_device("cuda");
}

double error_of(const at::Tensor& one, const at::Tensor& other) {
  const at::Tensor exact = other.to(at::kCPU, at::kDouble);
  return ((one.to(at::kCPU, at::kDouble) - exact).norm() / exact.norm()).item<double>();
}

struct Attended {
  at::Tensor output;
  std::vector<at::Tensor> gradients;
};

// Attention with slopes over [2, H, T, d] with half as many kv heads, and its gradients.
Attended attend_with_slopes(const Heads& heads, at::ScalarType type, at::Device device) {
  const auto moved = [&](const at::Tensor& tensor) {
    return tensor.to(device, type).detach().requires_grad_();
  };
  const Heads here = {moved(heads.q), moved(heads.k), moved(heads.v)};
  const std::vector<double> slopes = alibi_slopes(here.q.size(1));
  const Alibi alibi(slopes, here.q.size(-1), here.q.options().requires_grad(false));
  const at::Tensor output = alibi.attend(here, Alibi::best_form(device));
  GradientSum gradients({here.q, here.k, here.v});
  gradients.add(output.to(at::kFloat).square().mean());
  return {output.detach(), gradients.sums()};
}

// Attention without a mask over such heads, and its gradients.
Attended attend_to_all(const Heads& heads, bool causal, at::ScalarType type, at::Device device) {
  const auto moved = [&](const at::Tensor& tensor) {
    // As projections give them: heads are views of [B, T, H·d].
    return tensor.transpose(1, 2).to(device, type).contiguous().transpose(1, 2).requires_grad_();
  };
  const Heads here = {moved(heads.q), moved(heads.k), moved(heads.v)};
  const at::Tensor output = attend(here, {}, std::nullopt, causal);
  GradientSum gradients({here.q, here.k, here.v});
  gradients.add(output.to(at::kFloat).square().mean());
  return {output.detach(), gradients.sums()};
}

// The peak memory of attention and its gradients, in bytes, at a given length.
double memory_of_attention(std::int64_t length, bool slopes, at::Device device) {
  const auto options = at::TensorOptions().dtype(at::kBFloat16).device(device);
  const auto heads = [&](std::int64_t count) { return at::randn({1, count, length, 64}, options); };
  c10::getDeviceAllocator(device.type())->resetPeakStats(device.index());
  const double before = peak_memory(device);
  const Heads all = {heads(16), heads(4), heads(4)};
  if (slopes) {
    attend_with_slopes(all, at::kBFloat16, device);
  } else {
    all.q.requires_grad_();
    GradientSum({all.q}).add(attend(all, {}).sum());
  }
  return peak_memory(device) - before;
}

}  // namespace

TEST_CASE("logits on a GPU equal those of transformers", "[gpu]") {
  const at::NoGradGuard no_gradients;
  const at::Device device = gpu();
  const auto* name = GENERATE("llama", "mistral", "gpt2", "bloom", "bloom_12", "falcon_40b", "gptj",
                              "mpt_12", "t5_v1_1", "umt5", "bert", "olmo2", "stablelm_qk");
  CAPTURE(name);
  const GoldenCase golden = load_golden_case(name);
  const Transformer model = load_transformer(golden.source, at::kFloat, device);
  CHECK(largest_difference(window_logits(model, golden.tokens.to(device)).to(at::kCPU),
                           golden.logits) <= 1e-4);
}

TEST_CASE("attention statistics on a GPU equal those on the CPU", "[gpu]") {
  const at::Device device = gpu();
  const TemporaryDirectory directory;
  const GoldenCase golden = load_golden_case(GENERATE("llama_mha", "bloom"));
  const at::Tensor flat = golden.tokens.flatten().contiguous();
  const auto* ids = flat.const_data_ptr<std::int64_t>();
  put_file(directory / "tokens",
           bytes_of_numbers(std::vector<std::uint16_t>(ids, ids + flat.numel())));
  const TokenFile data = TokenFile::open(directory / "tokens");
  const std::atomic<bool> stop{false};
  for (const auto& [where, name] : {std::pair{device, "there"}, {at::Device(at::kCPU), "here"}}) {
    calibrate(
        golden.source, data, {golden.tokens.size(1), 2, data.size()}, where, directory / name,
        [](std::int64_t, std::int64_t) {}, stop);
  }
  for (const char* tensor : {".mean", ".covariance"}) {
    const std::string name = moments_name(AttentionRole::kSelf, 1, InputSide::kQueries) + tensor;
    CAPTURE(name);
    CHECK(error_of(read_tensor(directory / "there", name), read_tensor(directory / "here", name)) <
          1e-4);
  }
}

TEST_CASE("heads solved for on a GPU are as good as those of the CPU", "[gpu]") {
  const at::Device device = gpu();
  const auto method = GENERATE(PoolMethod::kLowrank, PoolMethod::kMean);
  const bool rotates = GENERATE(false, true);
  CAPTURE(name_of(method), rotates);
  RandomNumbers random(3);
  const HeadBasis basis = rotates ? HeadBasis{{{0, 2}, {1, 3}}, {}, {1.0, 0.1}} : free_basis(4);
  const AttentionHeads heads = random_heads({}, random);
  const InputMoments moments = random_moments(30, random);
  PoolingTask task{method, 3, basis, moments, moments};
  if (rotates) {
    task.distances = {3, std::vector<double>(18, 1.0 / 3.0)};
  }
  const PooledAttention here = pool_attention(heads, task);
  task.device = device.str();
  const PooledAttention there = pool_attention(heads, task);
  // Eigenvectors have no sign, so weights may differ; what the attention computes may not.
  const at::Tensor inputs = random({5, 30});
  CHECK(error_of(attend(there.heads, basis, inputs), attend(here.heads, basis, inputs)) < 1e-8);
  for (std::size_t i = 0; i < here.groups.size(); ++i) {
    CHECK(std::abs(there.groups[i].loss - here.groups[i].loss) < 1e-9);
  }
}

TEST_CASE("the fused kernels of a GPU agree with LibTorch's operators", "[gpu]") {
  const at::Device device = gpu();
  if (device.is_cuda() && compiled_cuda_kernels() == nullptr) {
    SKIP("built without CUDA kernels");
  }
  CHECK(device_notes(device).empty());
  CHECK(check_device_kernels(device).empty());
}

TEST_CASE("gradients on a GPU equal those on the CPU", "[gpu]") {
  const at::Device device = gpu();
  const auto* name = GENERATE("llama", "gpt2", "bloom", "t5_v1_1");
  CAPTURE(name);
  const GoldenCase golden = load_golden_case(name);
  const auto gradients_on = [&](at::Device where) {
    const Parameters parameters =
        load_parameters(golden.source.spec, golden.source.checkpoint, at::kFloat, where);
    const Transformer model(golden.source.spec, parameters);
    parameters.require_gradients();
    const auto [hidden, targets] = predict(model, golden.tokens, 0, {objective_of(model.spec())});
    GradientSum gradients(parameters.tensors());
    gradients.add(model.loss(hidden, targets));
    return gradients.sums();
  };
  const auto there = gradients_on(device), here = gradients_on(at::kCPU);
  const double size = global_norm(here).item<double>();
  for (std::size_t i = 0; i < here.size(); ++i) {
    CHECK(largest_difference(there[i].to(at::kCPU), here[i]) <= 1e-5 * size);
  }
}

TEST_CASE("bf16 attention with slopes and its gradients are accurate on a GPU", "[gpu]") {
  const at::Device device = gpu();
  const std::int64_t length = 2048;
  const Heads heads = {at::randn({2, 8, length, 64}), at::randn({2, 4, length, 64}),
                       at::randn({2, 4, length, 64})};
  const Attended exact = attend_with_slopes(heads, at::kDouble, at::kCPU);
  const Attended found = attend_with_slopes(heads, at::kBFloat16, device);
  CHECK(error_of(found.output, exact.output) < 1e-2);
  for (std::size_t i = 0; i < exact.gradients.size(); ++i) {
    CHECK(error_of(found.gradients[i], exact.gradients[i]) < 2e-2);
  }
}

// cuDNN serves these on GPUs that it is fast on.
TEST_CASE("bf16 attention without a mask and its gradients are accurate on a GPU", "[gpu]") {
  const at::Device device = gpu();
  const bool causal = GENERATE(true, false);
  const std::int64_t length = device.is_privateuseone() ? 65 : GENERATE(1, 12, 200, 1024, 1027);
  const std::int64_t width = GENERATE(64, 128);
  const std::int64_t kv_heads = GENERATE(8, 2, 1);
  CAPTURE(causal, length, width, kv_heads);
  const auto heads = [&](std::int64_t count) { return at::randn({2, count, length, width}); };
  const Heads all = {heads(8), heads(kv_heads), heads(kv_heads)};
  const Attended exact = attend_to_all(all, causal, at::kDouble, at::kCPU);
  const Attended found = attend_to_all(all, causal, at::kBFloat16, device);
  CHECK(error_of(found.output, exact.output) < 1e-2);
  // One key: its weight is 1 whatever the query and the key.
  for (std::size_t i = length == 1 ? 2 : 0; i < exact.gradients.size(); ++i) {
    CHECK(error_of(found.gradients[i], exact.gradients[i]) < 2e-2);
  }
}

// Scores around -200: the sums of their exponentials are below what fp32 holds. A kernel that keeps
// logarithms of sums without their largest score would return NaN.
TEST_CASE("bf16 attention with very small scores and its gradients are accurate on a GPU",
          "[gpu]") {
  const at::Device device = gpu();
  const std::int64_t length = device.is_privateuseone() ? 65 : GENERATE(256, 2048);
  const auto heads = [&](std::int64_t count, double mean) {
    return (at::randn({1, count, length, 64}) / 2 + mean).to(at::kBFloat16).to(at::kFloat);
  };
  const Heads all = {heads(8, -20.0), heads(2, 1.25), heads(2, 0.0)};
  const Attended exact = attend_to_all(all, /*causal=*/true, at::kDouble, at::kCPU);
  const Attended found = attend_to_all(all, /*causal=*/true, at::kBFloat16, device);
  CHECK(error_of(found.output, exact.output) < 1e-2);
  for (std::size_t i = 0; i < exact.gradients.size(); ++i) {
    CHECK(error_of(found.gradients[i], exact.gradients[i]) < 5e-2);
  }
}

TEST_CASE("attention memory grows less than quadratically with the length", "[gpu]") {
  const at::Device device = gpu();
  if (device.is_cpu()) {
    SKIP("a CPU's memory is not counted that way");
  }
  const bool slopes = GENERATE(false, true);
  CAPTURE(slopes);
  const std::int64_t length = device.is_privateuseone() ? 256 : 4096;  // on paper a CPU computes
  memory_of_attention(length / 4, slopes, device);                     // what the device needs once
  // Scores of 4T x 4T would be 16 times those of T x T.
  const double shorter = memory_of_attention(length, slopes, device);
  const double longer = memory_of_attention(4 * length, slopes, device);
  CHECK(longer < 6 * shorter);
}

TEST_CASE("training on a GPU matches the CPU and resumes", "[gpu]") {
  const at::Device device = gpu();
  const TemporaryDirectory directory;
  const auto* name = GENERATE("llama", "bloom", "gpt2");
  CAPTURE(name);
  UptrainSettings settings = short_run(directory.path(), name, 4);
  settings.eval_data = settings.data.front();
  const double on_cpu = run_to_end(settings).after.value().loss;
  settings.device = device;
  settings.output = directory / "on-gpu";
  settings.memory = GENERATE(MemoryMode::kFull, MemoryMode::kCompact, MemoryMode::kHost);
  CAPTURE(name_of(*settings.memory));
  if (device.is_cpu() && settings.memory == MemoryMode::kHost) {
    return;  // refused
  }
  if (settings.memory != MemoryMode::kCompact) {  // which needs bf16
    CHECK(std::abs(run_to_end(settings).after.value().loss - on_cpu) < 1e-3);
  }

  settings.precision = Precision::kBf16;
  settings.optimizer.moments = Precision::kBf16;
  settings.recomputing = true;
  settings.output = directory / "resumed";
  run_until(settings, 2);
  CHECK(std::abs(run_to_end(settings, /*resume=*/true).after.value().loss - on_cpu) < 0.05);
}

namespace {

struct Losses : UptrainObserver {
  void on_step(const StepReport& report) override { all.push_back(report.loss); }
  std::vector<double> all;
};

std::vector<double> losses_of(const UptrainSettings& settings, bool shards, ProcessGroup* group) {
  const Model source = open_computable_model(settings.model);
  const DataLoader data = open_training_data(settings, source.spec);
  UptrainPlan plan = plan_uptraining(settings, source, data);
  plan.settings.sharding.weights = shards;
  Losses losses;
  run_uptraining(plan, source, data, /*resume=*/false, losses, kNeverStopped, group);
  return losses.all;
}

}  // namespace

// With one GPU, only a group of one rank can be made. Everything but the other ranks is real.
TEST_CASE("one rank trains through the collectives of a GPU", "[gpu]") {
  const at::Device device = gpu();
  if (device.is_privateuseone()) {
    SKIP("the ranks on paper have tests of their own");
  }
  const TemporaryDirectory directory;
  UptrainSettings settings = short_run(directory.path(), "llama", 4);
  settings.device = device;
  settings.precision = Precision::kBf16;
  settings.memory = GENERATE(MemoryMode::kFull, MemoryMode::kCompact);
  const bool shards = GENERATE(false, true);
  CAPTURE(name_of(*settings.memory), shards);
  const std::vector<double> alone = losses_of(settings, /*shards=*/false, nullptr);

  ProcessGroup group(launch_of(0, 1, free_port()), device, std::chrono::seconds(60));
  const at::Tensor tensor = at::randn({1000}, at::TensorOptions(device));
  const at::Tensor exact = tensor.clone();
  CHECK(group.sum(tensor).equal(exact));
  for (const Pending& pending :
       {group.sum_in_place(tensor), group.reduce(tensor, 0), group.broadcast(tensor, 0)}) {
    pending.in_order();
    CHECK(tensor.equal(exact));
  }
  CHECK(group.exchange("text") == std::vector<std::string>{"text"});
  settings.output = directory / "in-a-group";
  const std::vector<double> together = losses_of(settings, shards, &group);
  REQUIRE(together.size() == alone.size());
  for (std::size_t i = 0; i < alone.size(); ++i) {
    CHECK(std::abs(together[i] - alone[i]) < 0.01 * alone[i]);
  }
}

TEST_CASE("decoding on a GPU gives the tokens of a whole pass", "[gpu]") {
  const at::NoGradGuard no_gradients;
  const at::Device device = gpu();
  const auto* name = GENERATE("llama", "bloom", "gpt2", "mistral");
  CAPTURE(name);
  const GoldenCase golden = load_golden_case(name);
  const Transformer model = load_transformer(golden.source, at::kFloat, device);
  const at::Tensor tokens = golden.tokens.to(device);
  KvCache cache =
      model.make_cache({.batch = tokens.size(0), .capacity = tokens.size(1) + 4, .window = {}});
  const at::Tensor last = read_tokens(model, tokens, cache, 4);
  CHECK(largest_difference(last.to(at::kCPU), golden.logits.select(1, -1)) <= 1e-4);
}

TEST_CASE("a graph of decoding on a GPU gives the same tokens at every replay", "[gpu]") {
  const at::NoGradGuard no_gradients;
  const at::Device device = gpu();
  if (device.is_cpu()) {
    SKIP("CPUs have no graphs");
  }
  const auto* name = GENERATE("llama", "bloom", "gpt2");
  const auto type = GENERATE(at::kFloat, at::kBFloat16);
  CAPTURE(name, c10::toString(type));
  const GoldenCase golden = load_golden_case(name);
  const Transformer model = load_transformer(golden.source, type, device);
  const at::Tensor prompt = golden.tokens.to(device);
  const std::int64_t length = prompt.size(1), count = 3;
  KvCache cache =
      model.make_cache({.batch = prompt.size(0), .capacity = length + count, .window = {}});
  const at::Tensor first = read_tokens(model, prompt, cache, length);
  const auto decode = [&] {
    cache.assume_length(length);
    at::Tensor logits = first;
    return decode_greedily(model, logits, cache, count);
  };
  const at::Tensor expected = decode();
  const at::Tensor tokens = at::zeros_like(expected);
  const GraphRecording recording = record_graph(device, [&] { tokens.copy_(decode()); });
  CAPTURE(recording.obstacle);
  REQUIRE(recording.replay != nullptr);
  for (int round = 0; round < 3; ++round) {
    wait_for(device);
    tokens.zero_();
    wait_for(device);
    recording.replay();
    wait_for(device);
    CHECK(tokens.equal(expected));
  }
}

TEST_CASE("the free memory of a GPU is reported", "[gpu]") {
  const at::Device device = gpu();
  CHECK(available_memory(device).value_or(0.0) > double(1U << 30));
}

}  // namespace regroup
