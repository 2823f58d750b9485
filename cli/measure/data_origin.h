// Tokens for a model: of a text, or of a file whose tokenizer is compared with the model's.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "cli/shell/console.h"
#include "cli/shell/text_input.h"
#include "formats/base/staged_directory.h"
#include "formats/model/model.h"
#include "formats/vocabulary/token_file.h"
#include "formats/vocabulary/token_writer.h"
#include "tokens/tokenize.h"
#include "tokens/tokenizer.h"

namespace regroup {

/// Prints the warning of warning_of_context() on stderr, if there is one.
void warn_of_context(const Model& model, std::int64_t context, const Console& console);

/// What a token file made with this tokenizer records.
TokenOrigin origin_of(const Tokenizer& tokenizer);

/// The same of a model's own tokenizer; nothing if it has none that can be read.
std::optional<TokenOrigin> origin_of(const Model& model);

/// Throws kUsage if `tokenizer` is another one than the model's, and prints a warning if a few
/// tokens differ. A model without a tokenizer is not checked.
void check_tokenizer(const Model& model, const Tokenizer& tokenizer, const Console& console);

/// Throws kUsage if the tokens in `data` are of another tokenizer than the model's, and prints a
/// warning if a few differ, if the model's tokenizer cannot be read, or if the file does not say
/// which tokenizer made it. An empty path and a model without a tokenizer are not checked.
void check_data_origin(const Model& model, const std::filesystem::path& data,
                       const Console& console);

/// The tokenizer that `text` names, or the model's own. Throws what open_tokenizer() throws.
std::unique_ptr<Tokenizer> open_tokenizer_of(const Model& source, const TextInput& text);

/// Tokens that a command reads of a text of which it uses `used`: windows from all over 16 times as
/// many, because a text has parts.
std::int64_t tokens_to_read(std::int64_t used);

/// Writes the tokens of the text to `output`, a new .bin with an .idx: `wanted` of them,
/// or all if the text has fewer or no number is given; several texts share that number. Throws
/// kUsage if there is no tokenizer for the model or it is another than the model's, kBadInput for
/// text that cannot be read.
void write_tokens(const Model& source, const TextInput& text, int threads,
                  std::optional<std::int64_t> wanted, const std::filesystem::path& output);

/// Sets the field of --field, unless it is empty. Throws kUsage if no input is JSON.
void set_field(TokenizeSettings& settings, const std::string& field);

/// A token file of one command: named by the user, or made of text and removed with this object.
class TokenInput {
 public:
  /// One of `data`, a token file, and `text` must be given; throws kUsage for none or both, and
  /// what write_tokens() throws.
  TokenInput(const std::string& data, const TextInput& text, const Model& source, int threads,
             std::optional<std::int64_t> wanted);

  const std::filesystem::path& path() const { return path_; }

  /// Throws what TokenFile::open() does.
  TokenFile open() const { return TokenFile::open(path_, name_); }

 private:
  std::unique_ptr<StagedDirectory> made_;
  std::filesystem::path path_;
  std::string name_;  // of the first text; empty for a token file
};

}  // namespace regroup
