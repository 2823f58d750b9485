// Tracks the recent mean of the loss and detects loss spikes.
#pragma once

#include <cstddef>
#include <deque>

namespace regroup {

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

}  // namespace regroup
