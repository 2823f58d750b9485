// What `regroup diff` found, as a page.
#pragma once

#include <string>
#include <vector>

#include "formats/inspect/checkpoint_difference.h"

namespace regroup {

struct DiffPage {
  std::string before, after;  ///< as they were given
  const std::vector<TensorDifference>& tensors;
  const std::vector<JsonDifference>& settings;
};

/// The text of an HTML document.
std::string diff_page(const DiffPage& facts);

}  // namespace regroup
