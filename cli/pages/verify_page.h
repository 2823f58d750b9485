// What `regroup verify` found, as a page.
#pragma once

#include <optional>
#include <string>

#include "cli/measure/verify_logits.h"
#include "cli/pages/model_page.h"
#include "converter/verify/verify_conversion.h"

namespace regroup {

struct VerifyPage {
  std::string source, result;  ///< as they were named
  const Verification& found;
  std::optional<LogitsResult> logits = std::nullopt;
  /// Of the result; tensors, statistics, similarities and training are not shown.
  ModelPage model;
};

/// The text of an HTML document.
std::string verify_page(const VerifyPage& facts);

}  // namespace regroup
