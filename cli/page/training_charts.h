// The course of an uptraining run as charts.
#pragma once

#include <vector>

#include "cli/page/chart.h"
#include "cli/training_curve.h"

namespace regroup {

/// Training and held-out loss by step.
Chart loss_chart(const TrainingCurve& curve);

/// That, the learning rate and the norm of the gradients, as far as there are any.
std::vector<Chart> training_charts(const TrainingCurve& curve);

}  // namespace regroup
