// Learning-rate schedules: linear warm-up, then one of four shapes.
#pragma once

#include <cstdint>
#include <string_view>

namespace regroup {

enum class LrScheduleKind {
  kCosine,             ///< half a cosine, down to the last step
  kWarmupStableDecay,  ///< the peak, then linear decay over the last steps
  kConstant,           ///< the peak
  kInverseSqrt,        ///< T5's 1/√max(step, 10⁴), continued from a step of the pretraining
};

/// "cosine", "wsd", "constant" or "inverse-sqrt".
std::string_view name_of(LrScheduleKind kind);

/// Reads such a name; throws kUsage for anything else.
LrScheduleKind parse_lr_schedule(std::string_view text);

struct LrSchedule {
  double peak = 0.0;         ///< the highest learning rate; kInverseSqrt: a factor
  double final_ratio = 0.1;  ///< the last learning rate over the peak; kCosine, kWarmupStableDecay
  std::int64_t warmup_steps = 0;
  std::int64_t steps = 0;  ///< of the whole run, warm-up included
  LrScheduleKind kind = LrScheduleKind::kCosine;
  std::int64_t decay_steps = 0;  ///< kWarmupStableDecay: the last steps of the run
  std::int64_t start_step = 0;   ///< kInverseSqrt: steps taken before this run

  /// The learning rate of `step`, counted from 0. It rises linearly up to step warmup_steps-1 and
  /// continues as
  ///   cosine        cosine decay to final_ratio·peak at the last step, then constant;
  ///                 Loshchilov & Hutter, SGDR, https://arxiv.org/abs/1608.03983
  ///   wsd           the peak, then linear decay over the last decay_steps to final_ratio·peak;
  ///                 Hu et al., MiniCPM, https://arxiv.org/abs/2404.06395, section 4
  ///   constant      the peak
  ///   inverse-sqrt  peak / √max(start_step + step, 10⁴);
  ///                 Raffel et al. 2020, https://arxiv.org/abs/1910.10683, section 3.1.2
  double at(std::int64_t step) const;

 private:
  double after_warmup(std::int64_t step) const;
};

}  // namespace regroup
