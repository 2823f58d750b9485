// `regroup uptrain --text`: the tokens of a run that are made of text.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

#include "cli/measure/data_origin.h"
#include "formats/base/staged_directory.h"
#include "formats/model/model.h"

namespace regroup {

/// The token file of one run. It is in OUT.run, next to the state, from the run's begin on, so that
/// the run can be resumed with the same tokens.
class TrainingText {
 public:
  /// Makes the tokens of all of the text, or finds those of the run that is resumed. Throws what
  /// write_tokens() throws, and kUsage for a run that was not begun with --text.
  TrainingText(const TextInput& text, const Model& source, int threads,
               const std::filesystem::path& output, bool resume);

  const std::filesystem::path& path() const { return path_; }

  /// Moves new tokens into OUT.run, which must exist.
  void keep();

 private:
  std::filesystem::path kept_;
  std::unique_ptr<StagedDirectory> made_;  // null if they are in OUT.run
  std::filesystem::path path_;
};

}  // namespace regroup
