// Finds a learning rate by short trials.
#pragma once

#include <cstddef>
#include <functional>
#include <map>

namespace regroup {

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
