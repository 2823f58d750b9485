// The summary of a model or weight file, for tests.
#pragma once

#include <filesystem>

#include "formats/model/model_directory.h"
#include "formats/model/model_summary.h"

namespace regroup {

inline ModelSummary summary_of(const std::filesystem::path& path) {
  return summarize_model(path, open_checkpoint(path));
}

}  // namespace regroup
