// The learning rate over a run: linear warm-up, then half a cosine.
#pragma once

#include <cstdint>

namespace regroup {

struct CosineSchedule {
  double peak = 0.0;         ///< the highest learning rate
  double final_ratio = 0.1;  ///< the last learning rate, as a fraction of the peak
  std::int64_t warmup_steps = 0;
  std::int64_t steps = 0;  ///< of the whole run, warm-up included

  /// The learning rate of `step`, counted from 0. It rises linearly to the peak at step
  /// warmup_steps-1 and falls along a cosine to final_ratio·peak at the last step, where it stays.
  /// Loshchilov & Hutter, SGDR, https://arxiv.org/abs/1608.03983
  double at(std::int64_t step) const;
};

}  // namespace regroup
