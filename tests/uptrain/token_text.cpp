#include "tests/uptrain/token_text.h"

#include "tests/refusal.h"

namespace regroup {
namespace {

class StopAfter : public UptrainObserver {
 public:
  StopAfter(std::int64_t step, std::atomic<bool>& stop) : step_(step), stop_(stop) {}
  void on_start(const TrainingProgress& progress) override { stop_ = progress.step >= step_; }
  void on_step(const StepReport& report) override { stop_ = report.step >= step_; }

 private:
  std::int64_t step_;
  std::atomic<bool>& stop_;
};

UptrainResult run(const UptrainSettings& settings, bool resume, UptrainObserver& observer,
                  const std::atomic<bool>& stop) {
  const Model source = open_computable_model(settings.model);
  const DataLoader data = open_training_data(settings, source.spec);
  const UptrainPlan plan = plan_uptraining(settings, source, data);
  return run_uptraining(plan, source, data, resume, observer, stop);
}

}  // namespace

std::vector<std::uint16_t> learnable_text(std::size_t length, std::uint16_t vocab) {
  std::vector<std::uint16_t> text;
  std::uint32_t noise = 1;
  std::uint16_t id = 0;
  while (text.size() < length) {
    noise = noise * 1664525U + 1013904223U;
    id = static_cast<std::uint16_t>((id * 5U + 3U + (noise >> 28 == 0 ? noise >> 16 : 0)) % vocab);
    text.push_back(id);
  }
  return text;
}

UptrainSettings short_run(const std::filesystem::path& directory, const std::string& fixture,
                          std::int64_t steps) {
  put_file(directory / "training.bin", bytes_of_numbers(learnable_text(2000, 64)));
  UptrainSettings settings;
  settings.model = golden(fixture);
  settings.output = directory / "out";
  settings.data = {directory / "training.bin"};
  settings.steps = steps;
  settings.sequence_length = 12;
  settings.batch = 3;
  settings.accumulation = 2;
  settings.learning_rate = 3e-3;
  settings.seed = 7;
  return settings;
}

UptrainResult run_to_end(const UptrainSettings& settings, bool resume) {
  UptrainObserver silent;
  return run(settings, resume, silent, std::atomic<bool>{false});
}

Error run_until(const UptrainSettings& settings, std::int64_t stop_after, bool resume) {
  std::atomic<bool> stop{false};
  StopAfter observer(stop_after, stop);
  return refusal_of([&] { run(settings, resume, observer, stop); });
}

}  // namespace regroup
