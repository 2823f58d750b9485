// The summary of a model or weight file, for tests.
#pragma once

#include <filesystem>

#include "formats/directory/model_directory.h"
#include "formats/inspect/model_summary.h"

namespace regroup {

inline ModelSummary summary_of(const std::filesystem::path& path) {
  return summarize_model(path, open_checkpoint(path));
}

}  // namespace regroup
