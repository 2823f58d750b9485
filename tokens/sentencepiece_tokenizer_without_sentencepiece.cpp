// The error message of builds without SentencePiece.
#include "formats/base/error.h"
#include "formats/base/printable.h"
#include "tokens/tokenizer.h"

namespace regroup {

std::unique_ptr<Tokenizer> open_sentencepiece(const std::filesystem::path& model) {
  throw_usage(
      "{}: this regroup was built without SentencePiece (libsentencepiece-dev), which reads a "
      "tokenizer.model; tokenizer.json and --tokenizer bytes work",
      printable_path(model));
}

}  // namespace regroup
