// The course of uptraining runs as charts.
#pragma once

#include <string>
#include <vector>

#include "cli/page/chart.h"
#include "cli/pages/training_curve.h"

namespace regroup {

/// A run, and what it is called where there are several.
struct NamedCurve {
  std::string name;
  TrainingCurve curve;
};

/// Loss (training and held-out), learning rate, norm of the gradients and tokens per second by
/// step, as far as any run has them; all runs in each chart. Their ids are "loss", "learning-rate",
/// "gradient-norm" and "speed".
std::vector<Chart> training_charts(const std::vector<NamedCurve>& runs);

}  // namespace regroup
