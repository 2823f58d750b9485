// Charts of training runs.
#pragma once

#include <string>
#include <vector>

#include "cli/page/chart.h"
#include "cli/pages/training_curve.h"

namespace regroup {

/// A run, and its name in charts of several runs.
struct NamedCurve {
  std::string name;
  TrainingCurve curve;
};

/// Charts by step with all runs: loss (training and held-out), learning rate, gradient norm and
/// tokens per second. Their ids are "loss", "learning-rate", "gradient-norm" and "speed". A chart
/// for which no run has values is left out.
std::vector<Chart> training_charts(const std::vector<NamedCurve>& runs);

}  // namespace regroup
