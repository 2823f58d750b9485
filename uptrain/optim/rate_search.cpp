#include "uptrain/optim/rate_search.h"

#include <array>
#include <cmath>
#include <limits>

namespace regroup {
namespace {

constexpr std::array kRates{0.3, 0.1, 0.03, 0.01, 0.003, 0.001, 0.0003};

double error_at(const RateTrial& trial, std::size_t index) {
  const double error = trial(kRates[index]);
  return std::isfinite(error) ? error : std::numeric_limits<double>::infinity();
}

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

}  // namespace regroup
