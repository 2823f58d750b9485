// Token files that commands make: of text that a model writes itself, and of the text of
// `regroup uptrain --text`.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "cli/measure/data_origin.h"
#include "cli/shell/console.h"
#include "cli/shell/text_input.h"
#include "formats/base/staged_directory.h"
#include "formats/model/model.h"
#include "uptrain/run/sample.h"

namespace regroup {

/// How the source writes chats, if its tokenizer's chat template is of a known form; says so in a
/// note if it is not. None for a source without a template or tokenizer.
std::optional<ChatSettings> chats_of(const Model& source, const TextInput& text,
                                     const Console& console);

/// Writes the sequences of sample() to `output`, a new .bin with an .idx, each as a document, and
/// shows the progress. Throws what sample() throws.
void write_samples(const Model& source, const SampleSettings& settings,
                   const std::filesystem::path& output, const Console& console);

/// The token file of the source's own text, in the files of a conversion and in its run.
inline constexpr const char* kOwnText = "own.bin";

/// A checksum of the bytes of a file; empty for what can be read only once.
std::string digest_of_file(const std::filesystem::path& path);

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
