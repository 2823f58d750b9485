// The HTML page of `regroup verify`.
#pragma once

#include <optional>
#include <string>

#include "cli/measure/verify_logits.h"
#include "cli/pages/model_page.h"
#include "converter/verify/verify_conversion.h"

namespace regroup {

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
