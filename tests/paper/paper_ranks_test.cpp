// Several ranks, threads of this process, each on the paper device. Gloo moves the tensors, as NCCL
// does between GPUs.
#include <atomic>
#include <cmath>
#include <csignal>
#include <functional>
#include <future>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ops/ones.h>
#include <c10/core/AutogradState.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "tests/file_tree.h"
#include "tests/paper/paper_device.h"
#include "tests/paper/paper_state.h"
#include "tests/temporary_directory.h"
#include "tests/tiny_models.h"
#include "tests/uptrain/distributed/free_port.h"
#include "tests/uptrain/never_stopped.h"
#include "tests/uptrain/token_text.h"
#include "uptrain/distributed/backend.h"
#include "uptrain/run/training_memory.h"

namespace regroup {
namespace {

// Gloo over the bytes of tensors on the paper device.
class PaperBackend : public c10d::Backend {
 public:
  PaperBackend(c10::intrusive_ptr<c10d::Backend> gloo, int rank, int ranks)
      : c10d::Backend(rank, ranks), gloo_(std::move(gloo)) {}

  const std::string getBackendName() const override { return "paper"; }
  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors,
                                           const c10d::AllreduceOptions& options) override {
    TORCH_CHECK(!fails, "the network is down");
    auto host = on_host(tensors);
    return gloo_->allreduce(host, options);
  }
  c10::intrusive_ptr<c10d::Work> reduce(std::vector<at::Tensor>& tensors,
                                        const c10d::ReduceOptions& options) override {
    gradients += options.rootRank == getRank() ? 0 : bytes_of_all(tensors);
    auto host = on_host(tensors);
    return gloo_->reduce(host, options);
  }
  c10::intrusive_ptr<c10d::Work> broadcast(std::vector<at::Tensor>& tensors,
                                           const c10d::BroadcastOptions& options) override {
    weights += options.rootRank == getRank() ? 0 : bytes_of_all(tensors);
    auto host = on_host(tensors);
    return gloo_->broadcast(host, options);
  }
  void shutdown() override {
    ++shutdowns;
    gloo_->shutdown();
  }
  void abort() override {
    ++aborts;
    gloo_->abort();
  }

  static inline std::atomic<bool> fails{false};
  static inline std::atomic<int> shutdowns{0}, aborts{0};
  static inline std::atomic<std::size_t> weights{0}, gradients{0};  // bytes of all ranks

 private:
  static std::size_t bytes_of_all(const std::vector<at::Tensor>& tensors) {
    std::size_t bytes = 0;
    for (const at::Tensor& tensor : tensors) {
      bytes += tensor.nbytes();
    }
    return bytes;
  }

  static std::vector<at::Tensor> on_host(const std::vector<at::Tensor>& tensors) {
    std::vector<at::Tensor> host;
    for (const at::Tensor& tensor : tensors) {
      host.push_back(regroup::on_host(tensor));
    }
    return host;
  }

  c10::intrusive_ptr<c10d::Backend> gloo_;
};

void register_paper_backend() {
  std::signal(SIGPIPE, SIG_IGN);  // as the program does: another rank's socket may be closed
  register_backend(paper_device().type(),
                   [](const c10::intrusive_ptr<c10d::Store>& store, int rank, int ranks,
                      c10::Device, std::chrono::milliseconds timeout) {
                     return c10::make_intrusive<PaperBackend>(
                         make_backend(store, rank, ranks, c10::kCPU, timeout), rank, ranks);
                   });
}

std::vector<double> losses_on(const UptrainSettings& settings, ProcessGroup* group) {
  struct Losses : UptrainObserver {
    void on_step(const StepReport& report) override { all.push_back(report.loss); }
    std::vector<double> all;
  } losses;
  const Model source = open_computable_model(settings.model);
  const DataLoader data = open_training_data(settings, source.spec);
  run_uptraining(plan_uptraining(settings, source, data), source, data, /*resume=*/false, losses,
                 kNeverStopped, group);
  return losses.all;
}

// Autograd has one thread for each device, where a rank's backward pass would wait for tensors from
// the pass of the other rank that waits behind it. Real ranks are processes with a device each.
void compute_backward_passes_here() {
  c10::AutogradState::get_tls_state().set_multithreading_enabled(false);
}

Launch launch_of(int rank, int port) {
  Launch launch;
  launch.rank = rank;
  launch.ranks = 2;
  launch.address = "127.0.0.1";
  launch.port = port;
  return launch;
}

// The losses of two ranks, each on a thread of its own.
std::pair<std::vector<double>, std::vector<double>> losses_of_two(const UptrainSettings& settings) {
  const int port = free_port();
  const auto run = [&](int rank) {
    if (settings.passes_in_step()) {
      compute_backward_passes_here();
    }
    ProcessGroup group(launch_of(rank, port), paper_device(), std::chrono::seconds(60));
    return losses_on(settings, &group);
  };
  std::future<std::vector<double>> second = std::async(std::launch::async, run, 1);
  std::vector<double> first = std::async(std::launch::async, run, 0).get();
  return {std::move(first), second.get()};
}

}  // namespace

TEST_CASE("two ranks on paper train as one process on the CPU does", "[paper]") {
  register_paper_backend();
  const TemporaryDirectory directory;
  const bool recomputing = GENERATE(false, true);
  const auto precision = GENERATE(Precision::kFp32, Precision::kBf16);
  const auto mode = GENERATE(MemoryMode::kFull, MemoryMode::kCompact, MemoryMode::kHost);
  if (mode == MemoryMode::kCompact && precision == Precision::kFp32) {
    return;
  }
  const bool shards = GENERATE(false, true);
  CAPTURE(recomputing, name_of(precision), name_of(mode), shards);
  UptrainSettings settings = short_run(directory.path(), "llama", 4);
  settings.accumulation = GENERATE(2, 4);
  settings.recomputing = recomputing;
  settings.precision = precision;
  const std::vector<double> alone = losses_on(settings, nullptr);

  settings.device = paper_device();
  settings.memory = mode;
  settings.ranks = settings.local_ranks = 2;
  settings.sharding.weights = shards;
  settings.output = directory / "ranks";
  PaperBackend::shutdowns = 0;
  const auto [first, second] = losses_of_two(settings);
  CHECK(second == first);
  REQUIRE(first.size() == alone.size());
  for (std::size_t i = 0; i < alone.size(); ++i) {
    CHECK(std::abs(first[i] - alone[i]) < (precision == Precision::kBf16 ? 2e-2 : 1e-5) * alone[i]);
  }
  CHECK(PaperBackend::shutdowns == 2);
}

TEST_CASE("two ranks on paper share sequences as one process on the CPU computes them", "[paper]") {
  register_paper_backend();
  const TemporaryDirectory directory;
  const char* const model = GENERATE("llama", "bloom", "mistral", "gemma2");
  const bool recomputing = GENERATE(false, true);
  CAPTURE(model, recomputing);
  UptrainSettings settings = short_run(directory.path(), model, 4);
  settings.accumulation = 1;
  settings.sequence_length = 14;
  put_file(settings.data.front(), bytes_of_numbers(learnable_text(2000, 36)));
  settings.recomputing = recomputing;
  settings.precision = Precision::kBf16;
  const std::vector<double> alone = losses_on(settings, nullptr);

  settings.device = paper_device();
  settings.memory = MemoryMode::kFull;
  settings.ranks = settings.local_ranks = settings.sequence_ranks = 2;
  settings.output = directory / "ranks";
  const auto [first, second] = losses_of_two(settings);
  CHECK(second == first);
  REQUIRE(first.size() == alone.size());
  for (std::size_t i = 0; i < alone.size(); ++i) {
    CHECK(std::abs(first[i] - alone[i]) < 2e-2 * alone[i]);
  }
}

TEST_CASE("what travels between ranks on paper is what the plan says", "[paper]") {
  register_paper_backend();
  const TemporaryDirectory directory;
  UptrainSettings settings = short_run(directory.path(), "llama", 3);
  settings.device = paper_device();
  settings.memory = MemoryMode::kFull;
  settings.ranks = settings.local_ranks = 2;
  settings.accumulation = GENERATE(2, 4);
  settings.sharding.weights = GENERATE(false, true);
  settings.precision = GENERATE(Precision::kBf16, Precision::kFp32);
  CAPTURE(settings.accumulation, settings.sharding.weights, name_of(settings.precision));
  const ModelSpec spec = open_computable_model(settings.model).spec;
  // Bytes of all ranks in that many steps, and before and after them.
  const auto travelled = [&](std::int64_t steps) {
    settings.steps = steps;
    settings.output += "x";
    PaperBackend::weights = PaperBackend::gradients = 0;
    losses_of_two(settings);
    return std::pair<double, double>(PaperBackend::weights, PaperBackend::gradients);
  };
  const auto [few_weights, few_gradients] = travelled(2);
  const auto [more_weights, more_gradients] = travelled(4);
  const TrainingTraffic planned =
      training_traffic(settings, spec, nullptr, *settings.sequence_length);
  CHECK(std::abs((more_weights - few_weights) / 4 / planned.weights - 1) < 0.01);
  CHECK(std::abs((more_gradients - few_gradients) / 4 / planned.gradients - 1) < 0.01);
}

// Both ranks allocate from one device, so their peaks may add up.
TEST_CASE("two ranks with a part of the weights each stay within the plan's memory", "[paper]") {
  register_paper_backend();
  const TemporaryDirectory directory;
  UptrainSettings settings = short_run(directory.path(), "llama", 2);
  settings.model =
      put_random_llama(directory / "model",
                       R"({"hidden_size": 128, "num_attention_heads": 4, "head_dim": 32,
      "num_key_value_heads": 2, "intermediate_size": 384, "num_hidden_layers": 24,
      "vocab_size": 256, "max_position_embeddings": 512})");
  put_file(settings.data.front(), bytes_of_numbers(learnable_text(2000, 256)));
  settings.sequence_length = 16;
  settings.batch = 1;
  settings.device = paper_device();
  settings.ranks = settings.local_ranks = settings.accumulation = 2;
  settings.recomputing = GENERATE(true, false);
  settings.precision = GENERATE(Precision::kBf16, Precision::kFp32);
  settings.trained = GENERATE(TrainedWeights::kAll, TrainedWeights::kKeysAndValues);
  settings.memory = MemoryMode::kFull;
  settings.output = directory / "out";
  CAPTURE(name_of(settings.precision), name_of(settings.trained), settings.recomputing);
  const ModelSpec spec = open_computable_model(settings.model).spec;
  const auto peak_of_two = [&](bool shards) {
    settings.sharding.weights = shards;
    settings.output += "x";
    auto* allocator = c10::getDeviceAllocator(paper_device().type());
    allocator->resetPeakStats(0);
    const double before = peak_memory(paper_device());
    losses_of_two(settings);
    return peak_memory(paper_device()) - before;
  };
  const double whole = peak_of_two(false);
  const double peak = peak_of_two(true);
  const double planned = 2 * training_memory(settings, spec, {}, 16).total();
  CAPTURE(whole, peak, planned, peak / planned, peak / whole);
  CHECK(peak <= planned);
  CHECK(peak >= 0.6 * planned);
  // With all weights trained, this model's gradients fit into one bucket of each rank.
  CHECK((settings.trained == TrainedWeights::kAll || peak < 0.75 * whole));
}

// What ends the groups of two ranks whose rank 1 then calls `work`; rank 0 meets it once more.
std::vector<std::string> errors_of_two(const std::function<void()>& work) {
  register_paper_backend();
  PaperBackend::aborts = PaperBackend::shutdowns = 0;
  const int port = free_port();
  const auto error_of = [&](int rank) -> std::string {
    try {
      ProcessGroup group(launch_of(rank, port), paper_device(), std::chrono::seconds(60));
      if (rank == 1) {
        work();
      }
      group.sum(at::ones({3}, at::TensorOptions().device(paper_device())));
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  std::future<std::string> second = std::async(std::launch::async, error_of, 1);
  const std::string first = error_of(0);
  return {first, second.get()};
}

TEST_CASE("when a rank ends in an error the other one gets an error and does not hang", "[paper]") {
  const auto errors = errors_of_two([] { throw_usage("a fault of this rank"); });
  CHECK(errors.front().starts_with("another rank has ended or does not answer"));
  CHECK(errors.back() == "a fault of this rank");
  CHECK(PaperBackend::aborts == 2);
  CHECK(PaperBackend::shutdowns == 0);
}

TEST_CASE("ranks that cannot connect are aborted", "[paper]") {
  PaperBackend::fails = true;
  const auto errors = errors_of_two([] { FAIL("rank 1 is connected"); });
  PaperBackend::fails = false;
  for (const std::string& error : errors) {
    CHECK(error.ends_with("the network is down"));
  }
  CHECK(PaperBackend::aborts == 2);
  CHECK(PaperBackend::shutdowns == 0);
}

}  // namespace regroup
