// Token data on disk: ids of one long text, in the formats of nanoGPT, llm.c, numpy and Megatron.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "formats/base/file.h"
#include "formats/token_files/megatron_index.h"

namespace regroup {

/// A token by which the documents of a file without an index are told apart.
struct DocumentMark {
  std::int64_t token = 0;
  bool ends = true;  ///< it is the last token of its document; else the first
};

/// A file of token ids, read with pread. Recognised by its first bytes, or those of the .idx beside
/// it:
///   Megatron     X.bin with X.idx (either may be named): u8, u16 or i32, its sequences in a row
///   numpy .npy   one dimension of little-endian u16 or u32
///   llm.c        256 i32 of header: magic 20240520, version 1 (u16) or 20240801, 7 (u32); count
///   raw          what else looks like it: little-endian u16 from the first byte on
class TokenFile {
 public:
  /// Reads the header, or where there is none the first 64 KiB. Throws kBadInput for an empty file,
  /// half a token at the end, headers or an index that do not fit the file, an .idx beside a .bin
  /// that is no index, and what says nothing of itself and does not look like u16 ids (text, for
  /// one).
  static TokenFile open(const std::filesystem::path& path);

  /// Tokens in the file.
  std::int64_t size() const { return size_; }

  /// Bytes of one stored id: 1, 2 or 4.
  std::int64_t token_bytes() const { return token_bytes_; }

  const std::filesystem::path& path() const { return file_.path(); }

  /// "raw u16", "llm.c u32", "Megatron i32", ….
  std::string_view format() const { return format_; }

  /// Fills `ids` with the tokens from `begin` on. Throws kBadInput if the file ends before.
  void read(std::int64_t begin, std::span<std::int64_t> ids) const;

  /// Throws kBadInput naming the first id that is not below `vocab_size`. Reads the whole file,
  /// unless its ids are too narrow to exceed it.
  void check_vocabulary(std::int64_t vocab_size) const;

  /// Calls `visit` with each document, in order: a Megatron index knows them; in other files they
  /// are what lies between `mark`s, which belong to them. Reads the whole index or file. Throws
  /// kUsage where there is neither, kBadInput for an index whose documents cannot be.
  void for_each_document(const std::optional<DocumentMark>& mark,
                         const DocumentVisitor& visit) const;

 private:
  explicit TokenFile(File file) : file_(std::move(file)) {}
  void read_header();
  void read_numpy_header();
  void read_llmc_header(bool wide);
  void check_megatron_index();
  void set_data(std::uint64_t offset, std::int64_t token_bytes, std::string_view format);

  File file_;
  std::optional<MegatronIndex> index_;
  std::uint64_t offset_ = 0;  // of the first token, in bytes
  std::int64_t token_bytes_ = 2;
  std::int64_t size_ = 0;
  std::string_view format_;
};

}  // namespace regroup
