#include "cli/measure/data_origin.h"

#include <fmt/format.h>

#include "cli/process/interrupt.h"
#include "formats/base/error.h"
#include "formats/base/file.h"
#include "formats/base/printable.h"
#include "formats/directory/model_directory.h"
#include "formats/gguf/gguf_split.h"
#include "formats/token_files/token_file.h"
#include "formats/vocabulary/gguf_vocabulary.h"

namespace regroup {
namespace {

namespace fs = std::filesystem;

bool has_own_tokenizer(const Model& model) {
  if (path_exists(model.path / "tokenizer.json") || path_exists(model.path / "tokenizer.model")) {
    return true;
  }
  const fs::path weights = resolve_weights_path(model.path);
  return is_gguf_file(weights) && has_tokenizer(gguf_metadata_of(weights));
}

TokenOrigin own_origin(const Model& model) {
  return origin_of(*open_tokenizer(model.path.string(), interrupt_requested()));
}

}  // namespace

TokenOrigin origin_of(const Tokenizer& tokenizer) {
  TokenOrigin origin{tokenizer.file().empty() ? "bytes" : tokenizer.file().string(), {}};
  tokenizer.for_each_token(
      [&](std::int64_t id, std::string_view text) { origin.digest.add(id, text); });
  return origin;
}

std::optional<TokenOrigin> origin_of(const Model& model) {
  try {
    return has_own_tokenizer(model) ? std::optional(own_origin(model)) : std::nullopt;
  } catch (const Error& fault) {
    if (fault.kind() == ErrorKind::kInterrupted) {
      throw;
    }
    return std::nullopt;
  }
}

std::string check_origin(const Model& model, const TokenOrigin& origin, const std::string& what) {
  if (!has_own_tokenizer(model)) {
    return "";
  }
  TokenOrigin own;
  try {
    own = own_origin(model);
  } catch (const Error& fault) {
    if (fault.kind() == ErrorKind::kInterrupted) {
      throw;
    }
    return fmt::format("warning: {} cannot be compared with the model's tokenizer: {}", what,
                       fault.what());
  }
  const std::size_t equal = own.digest.equal_parts(origin.digest);
  if (2 * equal < TokenizerDigest::kParts) {
    throw_usage(
        "{} are of the tokenizer {}, the model's is {}, with other ids: tokenize the text with the "
        "model's",
        what, printable(origin.tokenizer, 0), printable(own.tokenizer, 0));
  }
  return equal == TokenizerDigest::kParts
             ? ""
             : fmt::format(
                   "warning: {} are of the tokenizer {}, in which some tokens differ from the "
                   "model's, {}",
                   what, printable(origin.tokenizer, 0), printable(own.tokenizer, 0));
}

void check_data_origin(const Model& model, const fs::path& data, const Console& console) {
  if (data.empty()) {
    return;
  }
  const std::string what = fmt::format("the tokens of {}", printable(data.string(), 0));
  if (const auto origin = origin_of_tokens(data)) {
    const std::string warning = check_origin(model, *origin, what);
    if (!warning.empty()) {
      console.note(warning);
    }
  } else if (has_own_tokenizer(model)) {
    console.note(fmt::format(
        "warning: {} may be of another tokenizer than the model's, which makes every result "
        "meaningless: the file does not say; regroup tokenize makes files that do",
        what));
  }
}

}  // namespace regroup
