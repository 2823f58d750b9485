#include "uptrain/training_speed.h"

#include <algorithm>
#include <chrono>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>

#include "formats/error.h"
#include "uptrain/trainer.h"
#include "uptrain/training_flops.h"
#include "uptrain/training_loss.h"

namespace regroup {
namespace {

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// A model with all that a step needs; see run_uptraining().
class Bench {
 public:
  Bench(const Model& source, const UptrainSettings& settings, const TokenBatches& data)
      : weights_(load_parameters(source.spec, source.checkpoint, scalar_type_of(settings.precision),
                                 settings.device)),
        trained_(weights_.only(trained_tensors(source.spec, settings.trained))),
        masters_(settings.precision == Precision::kFp32 ? trained_ : trained_.copy_as(at::kFloat)),
        model_(source.spec, weights_),
        task_(make_task(with_special_tokens(settings.task, source), source.spec,
                        training_objective_of(source.spec), data.sequence_length())),
        frozen_(source.spec, settings.trained, masters_),
        optimizer_(make_optimizer(masters_, settings.optimizer)),
        data_(data) {
    model_.set_recomputing(settings.recomputing);
  }

  double flops_per_token() const {
    return training_flops_per_token(model_.spec(), task_, data_.sequence_length());
  }

  bool run(const LoopSettings& loop, const std::atomic<bool>& stop,
           const std::function<void(const StepReport&)>& after_step) {
    Trainer trainer(TrainingLoss(model_, task_), trained_, masters_, frozen_, *optimizer_, data_,
                    loop);
    TrainingProgress progress;
    return trainer.run(progress, stop, after_step);
  }

 private:
  Parameters weights_, trained_, masters_;
  Transformer model_;
  Task task_;
  FrozenQueries frozen_;
  std::unique_ptr<Optimizer> optimizer_;
  const TokenBatches& data_;
};

}  // namespace

double matmul_flops_per_second(at::ScalarType type, at::Device device) {
  const at::NoGradGuard no_gradients;
  const std::int64_t size = device.is_cpu() ? 2048 : 8192;
  const auto options = at::TensorOptions().dtype(type).device(device);
  const at::Tensor a = at::randn({size, size}, options);
  const at::Tensor b = at::randn({size, size}, options);
  const auto multiply = [&] { at::mm(a, b).select(0, 0).select(0, 0).item(); };  // waits for it
  multiply();
  const auto begin = std::chrono::steady_clock::now();
  multiply();
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
  const auto n = static_cast<double>(size);
  return 2.0 * n * n * n / elapsed.count();
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
                               const TokenBatches& data, std::int64_t warmup, std::int64_t steps,
                               const std::function<void(std::int64_t)>& after_step,
                               const std::atomic<bool>& stop) {
  TrainingSpeed speed;
  with_torch_errors([&] {
    Bench bench(source, settings, data);
    speed.tokens_per_step = settings.batch * settings.accumulation * data.sequence_length();
    speed.flops_per_step = bench.flops_per_token() * static_cast<double>(speed.tokens_per_step);
    const LoopSettings loop{.steps = warmup + steps,
                            .batch = settings.batch,
                            .accumulation = settings.accumulation,
                            .max_gradient_norm = settings.max_gradient_norm,
                            .schedule = {.peak = settings.peak_learning_rate(),
                                         .warmup_steps = 0,
                                         .steps = warmup + steps,
                                         .kind = ScheduleKind::kConstant}};
    const bool complete = bench.run(loop, stop, [&](const StepReport& report) {
      const double rate =
          matmul_flops_per_second(scalar_type_of(settings.precision), settings.device);
      if (report.step > warmup) {
        speed.step_seconds.push_back(report.seconds);
        speed.matmul_per_second.push_back(rate);
      }
      after_step(report.step);
    });
    if (!complete) {
      throw Error(ErrorKind::kInterrupted, "stopped");
    }
    speed.peak_memory = peak_memory(settings.device);
  });
  return speed;
}

}  // namespace regroup
