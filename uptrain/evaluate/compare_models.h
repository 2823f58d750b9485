// Tests on random tokens whether two models compute the same, a few layers at a time.
#pragma once

#include <atomic>

#include "converter/plan/conversion_plan.h"
#include "formats/model/model.h"

namespace regroup {

struct LogitComparison {
  double largest_difference = 0.0;
  double largest_logit = 0.0;
};

/// A comparison before the weights are rounded to the dtype of the result.
struct FormComparison {
  LogitComparison logits = {};
  /// ‖stored − planned‖ / ‖planned‖, the largest of all tensors of the result.
  double largest_rounding = 0.0;
};

/// Compares `result` with what `reference`, a plan for `source` that keeps its architecture, would
/// write. For decoder-only models. Computes every layer in fp32, in groups of layers that take
/// little memory; each group is placed between the embedding and the output projection. Throws
/// kInterrupted soon after `stop` turns true.
LogitComparison compare_logits(const ConversionPlan& reference, const Model& source,
                               const Model& result, const std::atomic<bool>& stop);

/// Compares what `form`, a plan for `source` in fp32 with the form of `result`, and `reference`, as
/// above and in fp32, would write, and the tensors of `result` with those that `form` would write.
/// Rounding changes logits by more than its own size where it changes the choice of an expert.
FormComparison compare_forms(const ConversionPlan& reference, const ConversionPlan& form,
                             const Model& source, const Model& result,
                             const std::atomic<bool>& stop);

}  // namespace regroup
