#include "cli/compare_result.h"

#include <algorithm>
#include <cmath>

#include "cli/interrupt.h"
#include "cli/sleeping_threads.h"
#include "formats/error.h"
#include "uptrain/compare_models.h"
#include "uptrain/device.h"
#include "uptrain/language_model.h"

namespace regroup {
namespace {

// Moved numbers are the same numbers, summed in another order. What is computed and stored anew is
// rounded to its type, which a network carries on to its logits.
double allowed_share(const ConversionPlan& plan) {
  double share = 1e-4;
  for (const TensorStep& step : plan.steps) {
    const bool rounded = step.fold || step.add != 0.0;
    const bool narrow = step.output.dtype == DType::kF16 || step.output.dtype == DType::kBF16;
    share = std::max(share, rounded && narrow ? 0.05 : 1e-4);
  }
  return share;
}

}  // namespace

std::optional<OutputComparison> compare_with_source(const Model& source,
                                                    const ConversionRequest& request,
                                                    const ConversionPlan& plan,
                                                    const std::filesystem::path& result,
                                                    const Console& console) {
  ConversionRequest same = request;
  same.target = "same";
  const ConversionPlan reference = plan_conversion(source, same);
  OutputComparison comparison;
  with_torch_errors([&] {
    const LogitComparison found =
        compare_logits(reference, source, open_computable_model(result), interrupt_requested());
    comparison = {found.largest_difference, found.largest_logit};
  });
  const double allowed = allowed_share(plan) * std::max(1.0, comparison.largest_output);
  if (!(comparison.largest_difference <= allowed)) {
    throw Error(ErrorKind::kDifference,
                fmt::format("written as {}, the model computes something else: logits differ by up "
                            "to {:.3g}, {:.3g} allowed; nothing was left behind",
                            plan.target.architecture, comparison.largest_difference, allowed));
  }
  static_cast<void>(console);
  return comparison;
}

}  // namespace regroup
