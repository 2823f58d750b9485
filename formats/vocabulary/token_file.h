// Token files: raw numbers, .npy, Megatron's .bin and .idx.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "formats/base/file.h"

namespace regroup {

// Megatron's index (X.idx) of a token file (X.bin): the sequences, and the documents they form.
// https://github.com/NVIDIA/Megatron-LM/blob/main/megatron/core/datasets/indexed_dataset.py
//
// Little-endian: "MMIDIDX\0\0", u64 version, u8 token type, u64 S (sequences), u64 D; then i32 [S]
// tokens per sequence, i64 [S] byte offset of each sequence in X.bin, i64 [D] first sequence of
// each document, ending with S. What made the tokens may be behind them (token_origin.h).

inline constexpr std::string_view kMegatronMagic{"MMIDIDX\0\0", 9};
inline constexpr std::uint64_t kMegatronVersion = 1;

/// The codes of the token types supported here.
enum class MegatronType : std::uint8_t { kU8 = 1, kI32 = 4, kU16 = 8 };

/// Called with the index of a document's first token and the index past its last.
using DocumentVisitor = std::function<void(std::int64_t begin, std::int64_t end)>;

/// X.idx for X.bin or X.idx, if something has that name, even a link to nothing: without its index,
/// the format of X.bin is unknown.
std::optional<std::filesystem::path> index_beside(const std::filesystem::path& path);

class MegatronIndex {
 public:
  /// Opens index_beside(path), if there is one. Throws kBadInput if the file is inconsistent or is
  /// not an index.
  static std::optional<MegatronIndex> beside(const std::filesystem::path& path);

  /// Bytes of one stored id: 1, 2 or 4.
  std::int64_t token_bytes() const { return token_bytes_; }

  /// For example "Megatron u16".
  std::string_view format() const { return format_; }

  /// The number of tokens in all sequences. Reads the whole index. Throws kBadInput unless the
  /// sequences are contiguous from the first byte.
  std::int64_t count_tokens() const;

  /// Visits all non-empty documents in order. Throws kBadInput if the index is inconsistent.
  void for_each_document(const DocumentVisitor& visit) const;

 private:
  explicit MegatronIndex(File file);

  File file_;
  std::int64_t token_bytes_ = 0;
  std::string_view format_;
  std::uint64_t sequences_ = 0;
  std::uint64_t documents_ = 0;
};

// Token files: one long sequence of ids, in the formats of nanoGPT, llm.c, numpy and Megatron.

/// A token that separates documents in a file without an index.
struct DocumentMark {
  std::int64_t token = 0;
  bool ends = true;  ///< true: the last token of a document; false: the first
};

/// A file of token ids, read with pread. The format is detected from its first bytes, or from an
/// .idx file with the same stem:
///   Megatron     X.bin with X.idx (either path works): u8, u16 or i32, contiguous sequences
///   numpy .npy   little-endian u8, u16, u32, i32, u64 or i64, row after row
///   llm.c        header of 256 i32: magic 20240520, version 1 (u16) or 20240801, 7 (u32); count
///   raw          otherwise, if plausible: little-endian u16, u32 or u64
class TokenFile {
 public:
  /// Reads the header, or the first 64 KiB if there is none. Throws kBadInput for an empty file, a
  /// partial token at the end, a header or index that does not match the file, an X.idx that is not
  /// an index, and a file without a header that does not look like ids (for example text). `name`:
  /// what messages call it, unless by its path.
  static TokenFile open(const std::filesystem::path& path, std::string name = {});

  /// Tokens in the file.
  std::int64_t size() const { return size_; }

  const std::filesystem::path& path() const { return file_.path(); }

  /// For messages: printable.
  const std::string& name() const { return name_; }

  /// "raw u16", "llm.c u32", "Megatron i32", ….
  std::string_view format() const { return format_; }

  /// Fills `ids` with the tokens from `begin` on. Throws kBadInput if the file is too short.
  void read(std::int64_t begin, std::span<std::int64_t> ids) const;

  /// Throws kBadInput naming the first id that is not below `vocab_size`. Reads the whole file
  /// unless the id type cannot hold such an id.
  void check_vocabulary(std::int64_t vocab_size) const;

  /// Calls `visit` for each document in order. Documents come from the Megatron index; in other
  /// files `mark` delimits them and belongs to them. Reads the whole index or file. Throws kUsage
  /// if there is neither index nor mark, kBadInput for an inconsistent index.
  void for_each_document(const std::optional<DocumentMark>& mark,
                         const DocumentVisitor& visit) const;

 private:
  explicit TokenFile(File file) : file_(std::move(file)) {}
  void for_each_chunk(const std::function<void(std::int64_t begin,
                                               std::span<const std::int64_t> ids)>& visit) const;
  void read_header();
  void read_numpy_header();
  void read_llmc_header(bool wide);
  void set_data(std::uint64_t offset, std::uint64_t end, std::int64_t token_bytes,
                std::string_view format);

  File file_;
  std::string name_;
  std::optional<MegatronIndex> index_;
  std::uint64_t offset_ = 0;      // of the first token, in bytes
  std::int64_t token_bytes_ = 2;  // 1, 2, 4 or 8
  std::int64_t size_ = 0;
  std::string_view format_;
};

}  // namespace regroup
