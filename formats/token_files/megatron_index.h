// Megatron's index beside a file of tokens: which runs of them are sequences, and which sequences
// make a document.
// https://github.com/NVIDIA/Megatron-LM/blob/main/megatron/core/datasets/indexed_dataset.py
//
// Little-endian: "MMIDIDX\0\0", u64 version, u8 type of a token, u64 S sequences, u64 D; then i32
// [S] tokens of each sequence, i64 [S] the byte of X.bin where it begins, i64 [D] the sequence that
// each document begins with, and at last S.
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

/// Numbers of the types that tokens are stored as, of those there are.
enum class MegatronType : std::uint8_t { kU8 = 1, kI32 = 4, kU16 = 8 };

/// Called with the first token of a document and the one past its last.
using DocumentVisitor = std::function<void(std::int64_t begin, std::int64_t end)>;

class MegatronIndex {
 public:
  /// The index of X.bin, or that X.idx itself; none where there is no X.idx. Throws kBadInput for
  /// one that cannot be what it says, or is something else: without it nobody knows what X.bin
  /// holds.
  static std::optional<MegatronIndex> beside(const std::filesystem::path& path);

  /// Bytes of one stored id: 1, 2 or 4.
  std::int64_t token_bytes() const;

  /// "Megatron u16" and the like.
  std::string_view format() const;

  /// Tokens of all sequences. Throws kBadInput unless they lie in a row from the first byte on.
  /// Reads the whole index.
  std::int64_t count_tokens() const;

  /// All documents that hold tokens, in order. Throws kBadInput where their numbers cannot be.
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
