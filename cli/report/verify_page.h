// Pages of verify and diff.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/measure/compare_logits.h"
#include "cli/report/model_page.h"
#include "converter/convert/verify_conversion.h"
#include "formats/model/tensor_comparison.h"

namespace regroup {

// The HTML page of `regroup diff`.

struct DiffPage {
  std::string before, after;  ///< paths as given on the command line
  const std::vector<TensorDifference>& tensors;
  const std::vector<JsonDifference>& settings;
};

/// A complete HTML document.
std::string diff_page(const DiffPage& facts);

// The HTML page of `regroup verify`.

struct VerifyPage {
  std::string source, result;  ///< paths as given on the command line
  const Verification& found;
  std::optional<LogitsResult> logits = std::nullopt;
  /// The result. The page does not show its tensors, statistics and training.
  ModelPage model;
};

/// A complete HTML document.
std::string verify_page(const VerifyPage& facts);

}  // namespace regroup
