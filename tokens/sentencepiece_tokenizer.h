// A Tokenizer that uses Google's SentencePiece library, if it was available at build time.
#pragma once

#include <filesystem>
#include <memory>

#include "tokens/tokenizer.h"

namespace regroup {

/// Opens a tokenizer.model and takes BOS and EOS from it. Throws kBadInput for a malformed file,
/// kUsage in a build without SentencePiece.
std::unique_ptr<Tokenizer> open_sentencepiece(const std::filesystem::path& model);

}  // namespace regroup
