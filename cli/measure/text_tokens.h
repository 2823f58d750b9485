// `--text`: text files where a command takes tokens.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "cli/options/text_input.h"
#include "formats/base/staged_directory.h"
#include "formats/model/model.h"

namespace regroup {

/// Tokens that a command reads of a text of which it uses `used`: windows from all over 16 times as
/// many, because a text has parts.
std::int64_t tokens_to_read(std::int64_t used);

/// Writes the tokens of the text to `output`, a new .bin with an .idx: `wanted` of them,
/// or all if the text has fewer or no number is given; several texts share that number. Throws
/// kUsage if there is no tokenizer for the model or it is another than the model's, kBadInput for
/// text that cannot be read.
void write_tokens(const Model& source, const TextInput& text, int threads,
                  std::optional<std::int64_t> wanted, const std::filesystem::path& output);

/// A token file of one command: named by the user, or made of text and removed with this object.
class TokenInput {
 public:
  /// One of `data`, a token file, and `text` must be given; throws kUsage for none or both, and
  /// what write_tokens() throws.
  TokenInput(const std::string& data, const TextInput& text, const Model& source, int threads,
             std::optional<std::int64_t> wanted);

  const std::filesystem::path& path() const { return path_; }

 private:
  std::unique_ptr<StagedDirectory> made_;
  std::filesystem::path path_;
};

}  // namespace regroup
