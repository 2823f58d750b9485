#include "uptrain/optim/rate_search.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace regroup {
namespace {

constexpr std::array kRates{0.3, 0.1, 0.03, 0.01, 0.003, 0.001, 0.0003};

constexpr double kNearlyAsGood = 1.5;

double ordered(double error) {
  return std::isfinite(error) ? error : std::numeric_limits<double>::infinity();
}

double error_at(const RateTrial& trial, std::size_t index) { return ordered(trial(kRates[index])); }

}  // namespace

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
      std::min_element(errors.begin(), errors.end(), [](const auto& left, const auto& right) {
        return ordered(left.second) < ordered(right.second);
      });
  double rate = best->first;
  for (const auto& [each, error] : errors) {
    if (error < before && error <= kNearlyAsGood * best->second) {
      rate = std::max(rate, each);
    }
  }
  return rate;
}

}  // namespace regroup
