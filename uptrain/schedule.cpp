#include "uptrain/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace regroup {

double CosineSchedule::at(std::int64_t step) const {
  if (step < warmup_steps) {
    return peak * static_cast<double>(step + 1) / static_cast<double>(warmup_steps);
  }
  const auto decay_steps = static_cast<double>(std::max<std::int64_t>(1, steps - warmup_steps));
  const double progress = std::min(1.0, static_cast<double>(step + 1 - warmup_steps) / decay_steps);
  const double falling = 0.5 * (1.0 + std::cos(std::numbers::pi * progress));  // 1 -> 0
  return peak * (final_ratio + (1.0 - final_ratio) * falling);
}

}  // namespace regroup
