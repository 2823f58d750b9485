#include "uptrain/train/lr_schedule.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>

#include "formats/base/error.h"
#include "formats/base/printable.h"

namespace regroup {

namespace {

// In the order of LrScheduleKind.
constexpr std::string_view kScheduleNames[] = {"cosine", "wsd", "constant", "inverse-sqrt"};
constexpr std::int64_t kFlatSteps = 10'000;  // T5's learning rate is constant for as many steps

// The fraction of `steps` steps that are done: 0 to 1.
double fraction_done(std::int64_t done, std::int64_t steps) {
  const auto all = static_cast<double>(std::max<std::int64_t>(1, steps));
  return std::clamp(static_cast<double>(done) / all, 0.0, 1.0);
}

constexpr std::array kRates{0.3, 0.1, 0.03, 0.01, 0.003, 0.001, 0.0003};

constexpr double kNearlyAsGood = 1.5;

double ordered(double error) {
  return std::isfinite(error) ? error : std::numeric_limits<double>::infinity();
}

double error_at(const RateTrial& trial, std::size_t index) { return ordered(trial(kRates[index])); }

}  // namespace

std::string_view name_of(LrScheduleKind kind) {
  return kScheduleNames[static_cast<std::size_t>(kind)];
}

LrScheduleKind parse_lr_schedule(std::string_view text) {
  const auto* found = std::ranges::find(kScheduleNames, text);
  if (found == std::end(kScheduleNames)) {
    throw_usage("schedule is \"{}\", allowed are cosine, wsd, constant and inverse-sqrt",
                printable(text));
  }
  return static_cast<LrScheduleKind>(found - kScheduleNames);
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

LrSchedule fitting_schedule(double peak, std::int64_t steps) {
  return {.peak = peak,
          .final_ratio = 0.02,
          .warmup_steps = std::max<std::int64_t>(1, steps / 20),
          .steps = steps};
}

bool LossSpikeDetector::add(double loss) {
  const bool was_above = above_;
  above_ = stands_out(loss);
  losses_.push_back(loss);
  if (losses_.size() > kWindow) {
    losses_.pop_front();
  }
  return above_ && !was_above;
}

double LossSpikeDetector::mean() const {
  return losses_.empty() ? std::nan("")
                         : std::accumulate(losses_.begin(), losses_.end(), 0.0) /
                               static_cast<double>(losses_.size());
}

bool LossSpikeDetector::stands_out(double loss) const {
  if (losses_.size() < kWindow) {
    return false;
  }
  const double usual = mean();
  double squares = 0.0;
  for (const double each : losses_) {
    squares += (each - usual) * (each - usual);
  }
  const double deviation = std::sqrt(squares / static_cast<double>(losses_.size()));
  return loss > 1.1 * usual && loss > usual + 6 * deviation;
}

double RateSearch::best(const RateTrial& trial) {
  const std::size_t start = last_;
  double least = error_at(trial, start);
  const auto advance = [&](int step) {
    for (std::size_t next = last_ + step; next < kRates.size(); next += step) {  // wraps below 0
      const double error = error_at(trial, next);
      if (!(error < least) && std::isfinite(least)) {
        return;
      }
      least = error;
      last_ = next;
    }
  };
  advance(1);  // to smaller rates first: one that is too large does harm
  if (last_ == start) {
    advance(-1);
  }
  return kRates[last_];
}

double rate_of_longer_run(const std::map<double, double>& errors, double before) {
  const auto best =
      std::ranges::min_element(errors, {}, [](const auto& trial) { return ordered(trial.second); });
  double rate = best->first;
  for (const auto& [each, error] : errors) {
    if (error < before && error <= kNearlyAsGood * best->second) {
      rate = std::max(rate, each);
    }
  }
  return rate;
}

}  // namespace regroup
