#include "uptrain/run/training_speed.h"

#include <chrono>
#include <cmath>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>

#include "formats/base/callback.h"
#include "formats/base/error.h"
#include "uptrain/model/measurements.h"
#include "uptrain/run/run_record.h"
#include "uptrain/train/metrics.h"
#include "uptrain/train/training_loss.h"

namespace regroup {
namespace {

constexpr double kLongestProduct = 1.0;  // seconds

// Times the second of two products, for which the device is warmed up.
double seconds_of_product(std::int64_t size, const at::TensorOptions& options) {
  const at::Tensor a = at::randn({size, size}, options);
  const at::Tensor b = at::randn({size, size}, options);
  // item() waits for the result.
  const auto multiply = [&] { at::mm(a, b).select(0, 0).select(0, 0).item(); };
  multiply();
  const auto begin = std::chrono::steady_clock::now();
  multiply();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

double matmul_flops_per_second(at::ScalarType type, at::Device device) {
  const at::NoGradGuard no_gradients;
  const std::int64_t largest = device.is_cpu() ? 2048 : 8192;
  double rate = 0.0;
  const auto flops_of = [](std::int64_t size) { return 2.0 * std::pow(size, 3); };
  for (std::int64_t size = 256;
       size <= largest && (rate == 0.0 || flops_of(size) / rate <= kLongestProduct); size *= 2) {
    rate =
        flops_of(size) / seconds_of_product(size, at::TensorOptions().dtype(type).device(device));
  }
  return rate;
}

double TrainingSpeed::median_seconds() const { return median(step_seconds); }

double TrainingSpeed::tokens_per_second() const {
  return static_cast<double>(tokens_per_step) / median_seconds();
}

double TrainingSpeed::flops_per_second() const { return flops_per_step / median_seconds(); }

double TrainingSpeed::fraction_of_matmul() const {
  std::vector<double> fractions;
  for (std::size_t i = 0; i < step_seconds.size(); ++i) {
    fractions.push_back(flops_per_step / step_seconds[i] / matmul_per_second[i]);
  }
  return median(fractions);
}

TrainingSpeed measure_training(const Model& source, const UptrainSettings& settings,
                               const DataLoader& data, std::int64_t warmup, std::int64_t steps,
                               const std::function<void(std::int64_t)>& after_step,
                               const std::atomic<bool>& stop) {
  TrainingSpeed speed;
  with_torch_errors([&] {
    TrainedModel trained(source, settings);
    const Task task = make_training_task(with_special_tokens(settings.task, source), source.spec,
                                         data.sequence_length());
    speed.tokens_per_step = settings.batch * settings.accumulation * data.sequence_length();
    speed.flops_per_step = training_flops_per_token(source.spec, task, data.sequence_length()) *
                           static_cast<double>(speed.tokens_per_step);
    Trainer trainer = trained.trainer(TrainingLoss(trained.model(), task), data,
                                      {.peak = settings.peak_learning_rate(),
                                       .steps = warmup + steps,
                                       .kind = LrScheduleKind::kConstant});
    TrainingProgress progress;
    const bool complete = trainer.run(progress, stop, [&](const StepReport& report) {
      const double rate =
          matmul_flops_per_second(scalar_type_of(settings.precision), settings.device);
      if (report.step > warmup) {
        speed.step_seconds.push_back(report.seconds);
        speed.matmul_per_second.push_back(rate);
      }
      call_if_given(after_step, report.step);
    });
    if (!complete) {
      throw Error(ErrorKind::kInterrupted, "stopped");
    }
    speed.peak_memory = peak_memory(settings.device);
  });
  return speed;
}

}  // namespace regroup
