// The error message of builds without PCRE2 or utf8proc.
#include "formats/base/error.h"
#include "formats/base/printable.h"
#include "tokens/tokenizer.h"

namespace regroup {

bool reads_tokenizer_json() { return false; }

std::unique_ptr<Tokenizer> make_json_tokenizer(const nlohmann::json&, const std::string& where) {
  throw_usage(
      "{}: this regroup was built without PCRE2 and utf8proc (libpcre2-dev, libutf8proc-dev), "
      "which "
      "read a tokenizer.json; tokenizer.model and --tokenizer bytes work",
      where);
}

std::unique_ptr<Tokenizer> open_tokenizer_json(const std::filesystem::path& file,
                                               const std::vector<AddedToken>&) {
  return make_json_tokenizer({}, printable_path(file));
}

std::unique_ptr<Tokenizer> with_added_tokens(std::unique_ptr<Tokenizer>,
                                             const std::vector<AddedToken>& added, bool) {
  throw_usage(
      "{}: adds tokens to a tokenizer.model; this regroup was built without PCRE2 and utf8proc "
      "(libpcre2-dev, libutf8proc-dev), which find them in texts",
      added.front().where);
}

}  // namespace regroup
