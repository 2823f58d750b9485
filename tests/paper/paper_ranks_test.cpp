// Several ranks, threads of this process, each on the paper device. Gloo moves the tensors, as NCCL
// does between GPUs.
#include <atomic>
#include <cmath>
#include <future>
#include <utility>
#include <vector>

#include <ATen/ops/ones.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "tests/paper/paper_device.h"
#include "tests/paper/paper_state.h"
#include "tests/temporary_directory.h"
#include "tests/uptrain/distributed/free_port.h"
#include "tests/uptrain/never_stopped.h"
#include "tests/uptrain/token_text.h"
#include "uptrain/distributed/backend.h"

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
    auto host = on_host(tensors);
    return gloo_->allreduce(host, options);
  }
  c10::intrusive_ptr<c10d::Work> reduce(std::vector<at::Tensor>& tensors,
                                        const c10d::ReduceOptions& options) override {
    auto host = on_host(tensors);
    return gloo_->reduce(host, options);
  }
  c10::intrusive_ptr<c10d::Work> broadcast(std::vector<at::Tensor>& tensors,
                                           const c10d::BroadcastOptions& options) override {
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

  static inline std::atomic<int> shutdowns{0}, aborts{0};

 private:
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

Launch launch_of(int rank, int port) {
  Launch launch;
  launch.rank = rank;
  launch.ranks = 2;
  launch.address = "127.0.0.1";
  launch.port = port;
  return launch;
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
  CAPTURE(recomputing, name_of(precision), name_of(mode));
  UptrainSettings settings = short_run(directory.path(), "llama", 4);
  settings.accumulation = GENERATE(2, 4);
  settings.recomputing = recomputing;
  settings.precision = precision;
  const std::vector<double> alone = losses_on(settings, nullptr);

  settings.device = paper_device();
  settings.memory = mode;
  settings.ranks = settings.local_ranks = 2;
  settings.output = directory / "ranks";
  const int port = free_port();
  const auto run = [&](int rank) {
    ProcessGroup group(launch_of(rank, port), paper_device(), std::chrono::seconds(60));
    return losses_on(settings, &group);
  };
  PaperBackend::shutdowns = 0;
  std::future<std::vector<double>> second = std::async(std::launch::async, run, 1);
  const std::vector<double> first = run(0);
  CHECK(second.get() == first);
  REQUIRE(first.size() == alone.size());
  for (std::size_t i = 0; i < alone.size(); ++i) {
    CHECK(std::abs(first[i] - alone[i]) < (precision == Precision::kBf16 ? 2e-2 : 1e-5) * alone[i]);
  }
  CHECK(PaperBackend::shutdowns == 2);
}

TEST_CASE("when a rank ends in an error the other one gets an error and does not hang", "[paper]") {
  register_paper_backend();
  PaperBackend::aborts = PaperBackend::shutdowns = 0;
  const int port = free_port();
  std::future<void> second = std::async(std::launch::async, [&] {
    try {
      ProcessGroup group(launch_of(1, port), paper_device(), std::chrono::seconds(60));
      throw_usage("a fault of this rank");
    } catch (const Error&) {  // the group is gone
    }
  });
  const auto wait_for_second = [&] {
    ProcessGroup group(launch_of(0, port), paper_device(), std::chrono::seconds(60));
    group.sum(at::ones({3}, at::TensorOptions().device(paper_device())));
  };
  CHECK_THROWS_AS(wait_for_second(), Error);
  second.get();
  CHECK(PaperBackend::aborts == 2);
  CHECK(PaperBackend::shutdowns == 0);
}

}  // namespace regroup
