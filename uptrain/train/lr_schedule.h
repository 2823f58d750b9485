// Learning rates: the schedule, the search for one, and losses that rise too far.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string_view>

namespace regroup {

// Learning-rate schedules: linear warm-up, then one of four shapes.

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

/// The schedule of refitting and distilling: a cosine down to a fiftieth of the peak, after a
/// warm-up of one step in twenty.
LrSchedule fitting_schedule(double peak, std::int64_t steps);

/// Tracks the recent mean of the loss and detects loss spikes.
class LossSpikeDetector {
 public:
  /// Number of losses in the mean that a new one is compared with.
  static constexpr std::size_t kWindow = 20;

  /// Adds the loss of one more step, a finite number. Returns whether it is a spike, and the first
  /// in a row: above the mean of a full window by at least 10 % and by six standard deviations.
  bool add(double loss);

  /// The mean of the last kWindow losses, or of all if there are fewer. NaN if there are none.
  double mean() const;

 private:
  bool stands_out(double loss) const;

  std::deque<double> losses_;
  bool above_ = false;
};

/// The error that a short training reaches with this learning rate.
using RateTrial = std::function<double(double rate)>;

/// Searches 0.3, 0.1, 0.03, ... 0.0003 for the rate with the least error. Each search begins at the
/// result of the last one, the first at 0.03, and goes on in the direction in which errors fall. It
/// takes three trials if the last result is still the best.
class RateSearch {
 public:
  /// An error that is not finite counts as the largest. Throws what `trial` throws.
  double best(const RateTrial& trial);

 private:
  std::size_t last_ = 2;  // index of the last result
};

/// For a run that is much longer than its trials, which favour small rates because they have no
/// time to settle: the largest rate whose trial leaves at most 1.5 times the error of the best, and
/// less than there was before; none of these: the best. `errors`: what trials left, by rate, at
/// least one; what is not finite counts as the largest.
double rate_of_longer_run(const std::map<double, double>& errors, double before);

}  // namespace regroup
