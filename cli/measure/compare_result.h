// Checks by computing logits that a result in another form computes the same as its source.
#pragma once

#include <filesystem>
#include <optional>

#include "cli/shell/console.h"
#include "converter/convert/conversion_plan.h"
#include "formats/model/model.h"

namespace regroup {

struct OutputComparison {
  double largest_difference = 0.0;  ///< of two logits for the same token
  double largest_output = 0.0;      ///< largest logit
  /// If the requested dtype rounds the weights: the difference to a reference rounded to that
  /// dtype, which shows the effect of the other form alone.
  std::optional<double> without_rounding = std::nullopt;
};

/// Compares the logits of `result`, a directory, with those of `source` pooled according to
/// `request`, on random tokens. Throws kDifference if they differ by more than rounding explains.
/// Returns none, with a note, if the model cannot be computed.
std::optional<OutputComparison> compare_with_source(const Model& source,
                                                    const ConversionRequest& request,
                                                    const ConversionPlan& plan,
                                                    const std::filesystem::path& result,
                                                    const Console& console);

}  // namespace regroup
