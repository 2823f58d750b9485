// Which tokenizer made a token file: a record at the end of Megatron's index or of an .npy, where
// other readers, which count what they read, do not look.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "formats/base/file.h"

namespace regroup {

/// The tokens of a tokenizer: which text has which id. Tokens are summed in 32 parts, so that two
/// vocabularies that differ in a few tokens (added, renamed) still have equal parts.
class TokenizerDigest {
 public:
  static constexpr std::size_t kParts = 32;

  /// Adds a token. Their order does not matter. "[PAD7]" with the id 7 is a placeholder of GGUF
  /// files, and left out; a space may be spelled as in SentencePiece.
  void add(std::int64_t id, std::string_view text);

  std::size_t equal_parts(const TokenizerDigest& other) const;
  bool operator==(const TokenizerDigest&) const = default;

  std::array<std::uint32_t, kParts> parts{};
};

struct TokenOrigin {
  std::string tokenizer;  ///< its name, for messages
  TokenizerDigest digest;
};

/// The bytes of the record.
std::string origin_record(const TokenOrigin& origin);

/// The record of the token file at `path`, which is as in TokenFile::open(); nothing if it has
/// none. Throws kBadInput if a file cannot be read.
std::optional<TokenOrigin> origin_of_tokens(const std::filesystem::path& path);

/// The record at the end of `file`; nothing if there is none. `bytes` is reduced by its size.
std::optional<TokenOrigin> origin_at_end(const File& file, std::uint64_t& bytes);

}  // namespace regroup
