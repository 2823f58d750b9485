// Text files in, one token file out, in memory that does not grow with them.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "formats/token_files/token_writer.h"
#include "tokens/documents.h"
#include "tokens/tokenizer.h"

namespace regroup {

struct TokenizeSettings {
  std::vector<std::string> inputs;  ///< files and pipes, "-" for standard input
  TextSettings text;                ///< its utf8 is the tokenizer's
  std::filesystem::path output;
  TokenLayout layout = TokenLayout::kMegatron;
  int threads = 1;
};

struct TokenizeResult {
  std::int64_t documents = 0;
  std::int64_t empty_documents = 0;  ///< left out
  std::int64_t tokens = 0;
  std::int64_t token_bytes = 0;  ///< of one id
  std::uint64_t text_bytes = 0;  ///< read, markup of JSON lines included
};

/// Called with the bytes read and those there are, 0 where that is not known.
using TokenizeProgress = std::function<void(std::uint64_t done, std::uint64_t total)>;

/// Ids that the file must have room for: the tokenizer's, and those around documents.
std::int64_t vocabulary_of(const Tokenizer& tokenizer);

/// Writes each document's tokens, between BOS and EOS as the tokenizer's ends() have it, in the
/// order of the inputs, however many threads there are. Throws kBadInput for inputs that cannot be
/// read or hold no text, what TokenWriter throws, and kInterrupted soon after `stop` turns true;
/// then nothing is left behind.
TokenizeResult tokenize(const Tokenizer& tokenizer, const TokenizeSettings& settings,
                        const TokenizeProgress& progress, const std::atomic<bool>& stop);

}  // namespace regroup
