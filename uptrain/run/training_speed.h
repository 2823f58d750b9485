// How fast a model trains here, beside what the machine's matrix multiplication can do.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <vector>

#include "uptrain/data/data_loader.h"
#include "uptrain/model/language_model.h"
#include "uptrain/run/uptrain_settings.h"

namespace regroup {

/// Floating-point operations per second of one large matrix product, measured once: 2·n³ over its
/// time, with n = 2048 on a CPU and 8192 elsewhere. The first call also warms the device up.
double matmul_flops_per_second(at::ScalarType type, at::Device device);

/// What was measured; steps and products alternate, so that both see the same machine.
struct TrainingSpeed {
  std::int64_t tokens_per_step = 0;
  double flops_per_step = 0.0;  ///< by training_flops_per_token(): what is recomputed counts once
  std::vector<double> step_seconds;       ///< in the order they were taken
  std::vector<double> matmul_per_second;  ///< after each step
  double peak_memory = 0.0;  ///< bytes: of a CPU the process's, else the device's allocations

  double median_seconds() const;
  double tokens_per_second() const;
  double flops_per_second() const;
  /// The median over steps of their FLOPs per second as a part of those of the product after.
  double fraction_of_matmul() const;
};

/// Takes `warmup` and then `steps` steps on `data` as uptraining takes them, of which nothing is
/// kept. Of `settings` it heeds all that a step depends on: batch, accumulation, what is trained,
/// optimizer, precision, device; they must pass validate_step(). `steps` is 1 at least. Calls
/// `after_step` with the steps taken so far. Throws kInterrupted once `stop` is set; kBadInput
/// where losses are not finite.
TrainingSpeed measure_training(const Model& source, const UptrainSettings& settings,
                               const DataLoader& data, std::int64_t warmup, std::int64_t steps,
                               const std::function<void(std::int64_t)>& after_step,
                               const std::atomic<bool>& stop);

}  // namespace regroup
