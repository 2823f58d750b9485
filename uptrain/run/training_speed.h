// Measures training speed relative to the machine's matrix multiplication.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <vector>

#include "uptrain/model/language_model.h"
#include "uptrain/train/data_loader.h"
#include "uptrain/train/uptrain_settings.h"

namespace regroup {

/// FLOP/s of one large matrix product: 2·n³ over its time, after one product that warms up the
/// device. n doubles from 256 to 2048 on a CPU and 8192 elsewhere, as long as the next product is
/// expected to take a second at most: bf16 is slow on a CPU without AVX-512.
double matmul_flops_per_second(at::ScalarType type, at::Device device);

/// Results. Steps and products alternate, so that both run under the same conditions.
struct TrainingSpeed {
  std::int64_t tokens_per_step = 0;
  double flops_per_step = 0.0;  ///< by training_flops_per_token(): what is recomputed counts once
  std::vector<double> step_seconds;       ///< in the order they were taken
  std::vector<double> matmul_per_second;  ///< after each step
  double peak_memory = 0.0;  ///< bytes: of the process on a CPU, else of the device's allocations

  double median_seconds() const;
  double tokens_per_second() const;
  double flops_per_second() const;
  /// The median over steps of their FLOP/s relative to that of the following product.
  double fraction_of_matmul() const;
};

/// Runs `warmup` and then `steps` training steps on `data`, and discards the result. Uses the
/// settings that a step depends on: batch, accumulation, trained weights, optimizer, precision,
/// device; they must pass validate_step(). `steps` is at least 1. Calls `after_step`, unless it is
/// empty, with the steps taken so far. Throws kInterrupted once `stop` is set; kBadInput if losses
/// are not finite.
TrainingSpeed measure_training(const Model& source, const UptrainSettings& settings,
                               const DataLoader& data, std::int64_t warmup, std::int64_t steps,
                               const std::function<void(std::int64_t)>& after_step,
                               const std::atomic<bool>& stop);

}  // namespace regroup
