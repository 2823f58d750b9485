// Tokenizes text files into one token file, in constant memory.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "formats/vocabulary/token_writer.h"
#include "tokens/documents.h"
#include "tokens/tokenizer.h"

namespace regroup {

struct TokenizeSettings {
  std::vector<std::string> inputs;  ///< files and pipes; "-" is standard input
  TextSettings text;                ///< utf8 is overridden by the tokenizer's
  std::filesystem::path output;
  TokenLayout layout = TokenLayout::kMegatron;
  int threads = 1;
  std::optional<TokenOrigin> origin = std::nullopt;  ///< to be recorded
  /// The most tokens that are written; none: all are. An input gives at most an equal share of what
  /// the inputs before it left, so that no input goes unread because another is long.
  std::optional<std::int64_t> max_tokens = std::nullopt;
};

struct TokenizeResult {
  std::int64_t documents = 0;
  std::int64_t empty_documents = 0;  ///< skipped
  std::int64_t tokens = 0;
  std::int64_t token_bytes = 0;     ///< of one id
  std::uint64_t text_bytes = 0;     ///< bytes read, JSON markup included
  std::int64_t json_inputs = 0;     ///< inputs that were JSON lines
  std::int64_t replaced_bytes = 0;  ///< that were not UTF-8
  std::int64_t skipped_lines = 0;   ///< that were no JSON object with the text
};

/// Called with the bytes read and the total, 0 if unknown, unless it is empty.
using TokenizeProgress = std::function<void(std::uint64_t done, std::uint64_t total)>;

/// The number of ids that the file must support: the tokenizer's and those of BOS and EOS.
std::int64_t vocabulary_of(const Tokenizer& tokenizer);

/// Writes each document's tokens, with BOS and EOS according to the tokenizer's ends(). The order
/// is that of the inputs for any number of threads. Throws kBadInput for inputs that cannot be read
/// or contain no text, what TokenWriter throws, and kInterrupted soon after `stop` becomes true. No
/// output is left after an error.
TokenizeResult tokenize(const Tokenizer& tokenizer, const TokenizeSettings& settings,
                        const TokenizeProgress& progress, const std::atomic<bool>& stop);

}  // namespace regroup
