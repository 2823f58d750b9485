#include "uptrain/optim/loss_spike_detector.h"

#include <cmath>
#include <numeric>

namespace regroup {

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

}  // namespace regroup
