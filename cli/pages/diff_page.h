// The HTML page of `regroup diff`.
#pragma once

#include <string>
#include <vector>

#include "formats/inspect/checkpoint_difference.h"

namespace regroup {

struct DiffPage {
  std::string before, after;  ///< paths as given on the command line
  const std::vector<TensorDifference>& tensors;
  const std::vector<JsonDifference>& settings;
};

/// A complete HTML document.
std::string diff_page(const DiffPage& facts);

}  // namespace regroup
