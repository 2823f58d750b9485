#include "tests/paper/rank_alone.h"

#include <future>

#include <c10/core/AutogradState.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <fmt/format.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "tests/paper/paper_device.h"
#include "tests/uptrain/distributed/free_port.h"
#include "tests/uptrain/never_stopped.h"
#include "uptrain/distributed/backend.h"
#include "uptrain/model/device.h"
#include "uptrain/run/run_record.h"
#include "uptrain/run/uptrain_plan.h"

namespace regroup {
namespace {

// The worst case for memory: nothing is done before somebody waits for it.
class LateWork : public c10d::Work {
 public:
  bool isCompleted() override { return waited_; }
  bool wait(std::chrono::milliseconds /*timeout*/) override { return waited_ = true; }

 private:
  bool waited_ = false;
};

// Where the groups that a thread makes note what they do: one record a rank, since all ranks call
// collectives at once while they connect.
thread_local RankRecord* own_record = nullptr;

// Notes what is called and does nothing.
class RecordingBackend : public c10d::Backend {
 public:
  RecordingBackend(int rank, int ranks, RankRecord& record)
      : c10d::Backend(rank, ranks), record_(record) {}

  const std::string getBackendName() const override { return "recording"; }
  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors,
                                           const c10d::AllreduceOptions& /*options*/) override {
    return note(fmt::format("sum {} over {}", tensors.front().numel(), getSize()));
  }
  c10::intrusive_ptr<c10d::Work> reduce(std::vector<at::Tensor>& tensors,
                                        const c10d::ReduceOptions& options) override {
    record_.sent +=
        options.rootRank == getRank() ? 0 : static_cast<double>(tensors.front().nbytes());
    return note(fmt::format("reduce {} to {}", tensors.front().numel(), options.rootRank));
  }
  c10::intrusive_ptr<c10d::Work> broadcast(std::vector<at::Tensor>& tensors,
                                           const c10d::BroadcastOptions& options) override {
    record_.received +=
        options.rootRank == getRank() ? 0 : static_cast<double>(tensors.front().nbytes());
    return note(fmt::format("broadcast {} from {}", tensors.front().numel(), options.rootRank));
  }
  void shutdown() override {}
  void abort() override {}

 private:
  c10::intrusive_ptr<c10d::Work> note(std::string call) {
    record_.calls.push_back(std::move(call));
    return c10::make_intrusive<LateWork>();
  }

  RankRecord& record_;
};

void train(const UptrainSettings& settings, ProcessGroup& group, RankRecord& record) {
  const Model source = open_computable_model(settings.model);
  const DataLoader data = open_training_data(settings, source.spec);
  const UptrainPlan plan = plan_uptraining(settings, source, data);
  auto* allocator = c10::getDeviceAllocator(paper_device().type());
  allocator->resetPeakStats(0);
  const double before = peak_memory(paper_device());
  UptrainSettings run = plan.settings;
  run.max_skipped_in_a_row = *settings.steps;
  TrainedModel student(source, run, &group);
  const double loading = peak_memory(paper_device()) - before;
  const RunLoss loss(plan, source, student.model(), &group);
  Trainer trainer = student.trainer(loss.function(), data, plan.schedule);
  record = {};  // the first weights are sent before the first step
  TrainingProgress progress;
  trainer.run(progress, kNeverStopped, {});
  const auto steps = static_cast<double>(*settings.steps);
  record.loading = loading;
  record.peak = peak_memory(paper_device()) - before;
  record.received /= steps;
  record.sent /= steps;
}

}  // namespace

RankRecord rank_alone(const UptrainSettings& settings, int rank) {
  const auto ranks = static_cast<int>(settings.ranks);
  const int port = free_port();
  std::vector<RankRecord> records(settings.ranks);
  register_backend(paper_device().type(),
                   [](const auto& /*store*/, int own, int size, c10::Device /*device*/,
                      auto /*timeout*/) -> c10::intrusive_ptr<c10d::Backend> {
                     return c10::make_intrusive<RecordingBackend>(own, size, *own_record);
                   });
  // The others only meet it.
  std::vector<std::unique_ptr<ProcessGroup>> groups(settings.ranks);
  std::vector<std::future<void>> meeting;
  for (int each = 0; each < ranks; ++each) {
    meeting.push_back(std::async(std::launch::async, [&, each] {
      own_record = &records[each];
      groups[each] = std::make_unique<ProcessGroup>(launch_of(each, ranks, port), paper_device(),
                                                    std::chrono::seconds(60));
      groups[each]->divide(static_cast<int>(settings.sharding.copies));
      groups[each]->divide_sequences(static_cast<int>(settings.sequence_ranks));
    }));
  }
  for (std::future<void>& each : meeting) {
    each.get();
  }
  c10::AutogradState::get_tls_state().set_multithreading_enabled(false);
  train(settings, *groups[rank], records[rank]);
  c10::AutogradState::get_tls_state().set_multithreading_enabled(true);
  RankRecord record = std::move(records[rank]);
  meeting.clear();
  for (auto& group : groups) {
    meeting.push_back(std::async(std::launch::async, [&group] { group.reset(); }));
  }
  return record;
}

}  // namespace regroup
