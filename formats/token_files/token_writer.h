// Writes token files document by document, in constant memory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "formats/base/appended_file.h"
#include "formats/base/staged_directory.h"
#include "formats/token_files/token_origin.h"

namespace regroup {

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
  void set_origin(TokenOrigin origin) { origin_ = std::move(origin); }

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
