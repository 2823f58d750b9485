#include "uptrain/optim/lr_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "formats/base/error.h"
#include "formats/base/printable.h"

namespace regroup {
namespace {

constexpr LrScheduleKind kKinds[] = {LrScheduleKind::kCosine, LrScheduleKind::kWarmupStableDecay,
                                     LrScheduleKind::kConstant, LrScheduleKind::kInverseSqrt};
constexpr std::int64_t kFlatSteps = 10'000;  // T5's learning rate is constant for as many steps

// The fraction of `steps` steps that are done: 0 to 1.
double fraction_done(std::int64_t done, std::int64_t steps) {
  const auto all = static_cast<double>(std::max<std::int64_t>(1, steps));
  return std::clamp(static_cast<double>(done) / all, 0.0, 1.0);
}

}  // namespace

std::string_view name_of(LrScheduleKind kind) {
  switch (kind) {
    case LrScheduleKind::kCosine: return "cosine";
    case LrScheduleKind::kWarmupStableDecay: return "wsd";
    case LrScheduleKind::kConstant: return "constant";
    case LrScheduleKind::kInverseSqrt: return "inverse-sqrt";
  }
  return "cosine";
}

LrScheduleKind parse_lr_schedule(std::string_view text) {
  for (const LrScheduleKind kind : kKinds) {
    if (text == name_of(kind)) {
      return kind;
    }
  }
  throw_usage("schedule is \"{}\", allowed are cosine, wsd, constant and inverse-sqrt",
              printable(text));
}

double LrSchedule::at(std::int64_t step) const {
  const double rising = step < warmup_steps ? fraction_done(step + 1, warmup_steps) : 1.0;
  return rising * after_warmup(std::max(step, warmup_steps - 1));
}

double LrSchedule::after_warmup(std::int64_t step) const {
  switch (kind) {
    case LrScheduleKind::kConstant: return peak;
    case LrScheduleKind::kInverseSqrt:
      return peak / std::sqrt(static_cast<double>(std::max(start_step + step, kFlatSteps)));
    case LrScheduleKind::kWarmupStableDecay: {
      const double done = fraction_done(step + 1 - (steps - decay_steps), decay_steps);
      return peak * (final_ratio + (1.0 - final_ratio) * (1.0 - done));
    }
    case LrScheduleKind::kCosine: break;
  }
  const double done = fraction_done(step + 1 - warmup_steps, steps - warmup_steps);
  const double falling = 0.5 * (1.0 + std::cos(std::numbers::pi * done));  // 1 -> 0
  return peak * (final_ratio + (1.0 - final_ratio) * falling);
}

}  // namespace regroup
