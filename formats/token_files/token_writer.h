// Writes token files document by document, in memory that does not grow with them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string_view>

#include "formats/base/appended_file.h"
#include "formats/base/staged_directory.h"

namespace regroup {

enum class TokenLayout {
  kMegatron,  ///< X.bin, ids of 16 or 32 bits, and X.idx, which knows the documents
  kNumpy,     ///< X.npy, one dimension of u16 or u32
  kRaw,       ///< ids of 16 bits and nothing else
};

/// "megatron", "npy" or "raw".
std::string_view name_of(TokenLayout layout);

/// Reads such a name; throws kUsage for anything else.
TokenLayout parse_token_layout(std::string_view text);

/// A token file in the making. Ids have 16 bits where the vocabulary has no more than 65,536
/// tokens, else 32. What is written appears under its name when publish() is called, or never.
class TokenWriter {
 public:
  /// Throws kUsage where a file of that name exists, or the layout cannot hold the vocabulary.
  TokenWriter(const std::filesystem::path& destination, TokenLayout layout,
              std::int64_t vocabulary);

  /// Appends tokens to the document in progress; they must be below the vocabulary's size.
  void write(std::span<const std::uint32_t> ids);

  /// What follows belongs to another document. One without tokens leaves no trace.
  void end_document();

  /// Tokens so far.
  std::int64_t tokens() const { return tokens_; }
  /// Documents that have ended so far.
  std::int64_t documents() const { return documents_; }
  /// Bytes of one stored id, 2 or 4.
  std::int64_t token_bytes() const { return token_bytes_; }

  /// Ends the last document, flushes everything to the device and gives it its name. Throws
  /// kEnvironment where the name was taken in the meantime.
  void publish();

 private:
  void end_sequence();
  void write_index();

  TokenLayout layout_;
  std::int64_t vocabulary_;
  std::int64_t token_bytes_;
  std::filesystem::path index_path_;  // where there is to be one
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
