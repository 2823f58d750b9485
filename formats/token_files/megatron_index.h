// Megatron's index (X.idx) of a token file (X.bin): the sequences, and the documents they form.
// https://github.com/NVIDIA/Megatron-LM/blob/main/megatron/core/datasets/indexed_dataset.py
//
// Little-endian: "MMIDIDX\0\0", u64 version, u8 token type, u64 S (sequences), u64 D; then i32 [S]
// tokens per sequence, i64 [S] byte offset of each sequence in X.bin, i64 [D] first sequence of
// each document, ending with S. What made the tokens may be behind them (token_origin.h).
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string_view>
#include <utility>

#include "formats/base/file.h"

namespace regroup {

inline constexpr std::string_view kMegatronMagic{"MMIDIDX\0\0", 9};
inline constexpr std::uint64_t kMegatronVersion = 1;

/// The codes of the token types supported here.
enum class MegatronType : std::uint8_t { kU8 = 1, kI32 = 4, kU16 = 8 };

/// Called with the index of a document's first token and the index past its last.
using DocumentVisitor = std::function<void(std::int64_t begin, std::int64_t end)>;

class MegatronIndex {
 public:
  /// Opens the index for `path`, which is X.bin or X.idx. Returns none if there is no X.idx. Throws
  /// kBadInput if the file is inconsistent or is not an index, because the format of X.bin is
  /// unknown without it.
  static std::optional<MegatronIndex> beside(const std::filesystem::path& path);

  /// Bytes of one stored id: 1, 2 or 4.
  std::int64_t token_bytes() const;

  /// For example "Megatron u16".
  std::string_view format() const;

  /// The number of tokens in all sequences. Reads the whole index. Throws kBadInput unless the
  /// sequences are contiguous from the first byte.
  std::int64_t count_tokens() const;

  /// Visits all non-empty documents in order. Throws kBadInput if the index is inconsistent.
  void for_each_document(const DocumentVisitor& visit) const;

 private:
  explicit MegatronIndex(File file) : file_(std::move(file)) {}
  void read_header();

  File file_;
  MegatronType type_ = MegatronType::kU16;
  std::uint64_t sequences_ = 0;
  std::uint64_t documents_ = 0;
};

}  // namespace regroup
