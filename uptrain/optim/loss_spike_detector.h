// Keeps an eye on the losses of a run: their recent mean, and whether one stands out.
#pragma once

#include <cstddef>
#include <deque>

namespace regroup {

class LossSpikeDetector {
 public:
  /// Losses that the mean is of, and that a new one is measured by.
  static constexpr std::size_t kWindow = 20;

  /// Takes the loss of one more step, a finite number. Returns whether it is a spike, the first of
  /// its kind in a row: above the mean of a full window by a tenth of it at least, and by six
  /// standard deviations.
  bool add(double loss);

  /// Of the last kWindow losses, or fewer; NaN where there are none.
  double mean() const;

 private:
  bool stands_out(double loss) const;

  std::deque<double> losses_;
  bool above_ = false;
};

}  // namespace regroup
