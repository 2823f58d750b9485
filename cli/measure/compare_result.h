// Whether a result of another architecture computes what its source does, found out by computing.
#pragma once

#include <filesystem>
#include <optional>

#include "cli/terminal/console.h"
#include "converter/plan/conversion_plan.h"
#include "formats/model/model.h"

namespace regroup {

struct OutputComparison {
  double largest_difference = 0.0;  ///< of two logits for the same token
  double largest_output = 0.0;      ///< largest logit
  /// The same difference from a source that is stored in the type that was asked for, where that
  /// one rounds: what is left is due to the other form.
  std::optional<double> without_rounding = std::nullopt;
};

/// Compares the logits of `result`, a directory, with those of `source` pooled as `request` says,
/// on random tokens. Throws kDifference where they differ by more than rounding explains. None,
/// with a message, where the program was built without LibTorch.
std::optional<OutputComparison> compare_with_source(const Model& source,
                                                    const ConversionRequest& request,
                                                    const ConversionPlan& plan,
                                                    const std::filesystem::path& result,
                                                    const Console& console);

}  // namespace regroup
