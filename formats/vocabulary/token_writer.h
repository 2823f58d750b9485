// Writing token files, and the record of the tokenizer that made one.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "formats/base/file.h"
#include "formats/base/staged_directory.h"

namespace regroup {

// Which tokenizer made a token file: a record at the end of Megatron's index or of an .npy, where
// other readers, which count what they read, do not look.

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

/// The record of the token file at `path`, which is as in TokenFile::open(); nothing if it has
/// none. Throws kBadInput if a file cannot be read.
std::optional<TokenOrigin> origin_of_tokens(const std::filesystem::path& path);

/// The record at the end of `file`; nothing if there is none. `bytes` is reduced by its size.
std::optional<TokenOrigin> origin_at_end(const File& file, std::uint64_t& bytes);

// Writes token files document by document, in constant memory.

enum class TokenLayout {
  kMegatron,  ///< X.bin with 16- or 32-bit ids, and X.idx with the documents
  kNumpy,     ///< X.npy, one dimension of u16 or u32
  kRaw,       ///< 16-bit ids without a header
};

/// "megatron", "npy" or "raw".
std::string_view name_of(TokenLayout layout);

/// Parses such a name; throws kUsage for anything else.
TokenLayout parse_token_layout(std::string_view text);

/// A token file being written. Ids have 16 bits if the vocabulary has at most 65,536 tokens,
/// otherwise 32. The file gets its name in publish(); without it, nothing is left.
class TokenWriter {
 public:
  /// Throws kUsage if `destination` exists or the layout cannot hold the vocabulary.
  TokenWriter(const std::filesystem::path& destination, TokenLayout layout,
              std::int64_t vocabulary);

  /// Appends tokens to the current document. Ids must be below the vocabulary's size.
  void write(std::span<const std::uint32_t> ids);

  /// Records which tokenizer made the tokens. Raw files have no place for it.
  void set_origin(std::optional<TokenOrigin> origin) { origin_ = std::move(origin); }

  /// Ends the current document. Empty documents are not recorded.
  void end_document();

  /// Tokens written so far.
  std::int64_t tokens() const { return tokens_; }
  /// Documents ended so far.
  std::int64_t documents() const { return documents_; }
  /// Bytes of one stored id, 2 or 4.
  std::int64_t token_bytes() const { return token_bytes_; }

  /// Ends the last document, flushes everything to the device and renames the file to its
  /// destination. Throws kEnvironment if the destination exists by now.
  void publish();

 private:
  void end_sequence();
  void write_index();
  void append_origin(AppendedFile& file) const;

  std::optional<TokenOrigin> origin_;
  TokenLayout layout_;
  std::int64_t vocabulary_;
  std::int64_t token_bytes_;
  std::filesystem::path index_path_;  // empty if the layout has none
  StagedDirectory staged_;
  AppendedFile data_;
  std::optional<AppendedFile> lengths_;  // i32 of each sequence; negative where it goes on with the
                                         // document of the one before
  std::int64_t tokens_ = 0;
  std::int64_t documents_ = 0;
  std::int64_t sequences_ = 0;
  std::int64_t sequence_tokens_ = 0;  // of the one in progress
  bool document_goes_on_ = false;     // with the sequence in progress
};

}  // namespace regroup
