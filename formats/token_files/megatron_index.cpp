#include "formats/token_files/megatron_index.h"

#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "formats/base/error.h"
#include "formats/base/printable.h"
#include "formats/base/stored_number.h"
#include "formats/token_files/token_origin.h"

namespace regroup {
namespace {

constexpr std::uint64_t kHeader = 9 + 8 + 1 + 8 + 8;

std::string shown_index(const File& file) { return printable(file.path().string(), 0); }

// A column of numbers, of which one piece at a time is in memory.
template <typename T>
class Column {
 public:
  Column(const File& file, std::uint64_t offset, std::uint64_t count)
      : file_(file), offset_(offset), count_(count) {}

  T operator[](std::uint64_t i) {
    if (i - first_ >= piece_.size()) {  // also true for an `i` before the piece, because it wraps
      constexpr std::uint64_t kPiece = 1 << 16;
      first_ = i;
      piece_.resize(std::min(kPiece, count_ - i));
      file_.read_at(offset_ + i * sizeof(T), std::as_writable_bytes(std::span(piece_)));
    }
    return piece_[i - first_];
  }

 private:
  const File& file_;
  std::uint64_t offset_, count_;
  std::uint64_t first_ = 0;
  std::vector<T> piece_;
};

// A bad index is an error. Without it, the tokens would be read in another format.
void check_magic(const File& file) {
  std::string start(std::min<std::uint64_t>(kMegatronMagic.size(), file.size()), '\0');
  file.read_at(0, std::as_writable_bytes(std::span(start)));
  if (start != kMegatronMagic) {
    throw_bad_input(
        "{}: {}, a Megatron index begins with MMIDIDX: recreate it, or move it away from its "
        ".bin if that file has no index",
        shown_index(file), start.empty() ? "empty" : "not a Megatron index");
  }
}

// Whether the name exists, even as a dangling link.
bool is_named(const std::filesystem::path& path) {
  std::error_code fault;
  return std::filesystem::symlink_status(path, fault).type() !=
         std::filesystem::file_type::not_found;
}

}  // namespace

std::optional<MegatronIndex> MegatronIndex::beside(const std::filesystem::path& path) {
  std::filesystem::path index = path;
  index.replace_extension(".idx");
  if ((path.extension() != ".bin" && path.extension() != ".idx") || !is_named(index)) {
    return std::nullopt;
  }
  File file = File::open(index);
  check_magic(file);
  MegatronIndex result(std::move(file));
  result.read_header();
  return result;
}

void MegatronIndex::read_header() {
  if (file_.size() < kHeader) {
    throw_bad_input("{}: {} bytes, a Megatron index has {} or more", shown_index(file_),
                    file_.size(), kHeader);
  }
  const auto version = read_number<std::uint64_t>(file_, 9);
  if (version != kMegatronVersion) {
    throw_bad_input("{}: Megatron index of version {}, allowed is 1", shown_index(file_), version);
  }
  const auto type = read_number<std::uint8_t>(file_, 17);
  if (type != 1 && type != 4 && type != 8) {
    throw_bad_input("{}: tokens of Megatron's type {}, allowed are 1 (u8), 4 (i32) and 8 (u16)",
                    shown_index(file_), type);
  }
  type_ = static_cast<MegatronType>(type);
  sequences_ = read_number<std::uint64_t>(file_, 18);
  documents_ = read_number<std::uint64_t>(file_, 26);
  std::uint64_t end = file_.size();
  origin_at_end(file_, end);  // may be behind the columns
  const std::uint64_t body = std::max(end, kHeader) - kHeader;
  // Divides instead of multiplying, so that no count can overflow.
  if (sequences_ > body / 12 || documents_ > (body - 12 * sequences_) / 8) {
    throw_bad_input("{}: {} sequences and {} documents do not fit into {} bytes",
                    shown_index(file_), sequences_, documents_, file_.size());
  }
  // Megatron's multimodal data sets end with one byte per sequence, its mode.
  const std::uint64_t left = body - 12 * sequences_ - 8 * documents_;
  if (left != 0 && left != sequences_) {
    throw_bad_input("{}: {} bytes after {} sequences and {} documents, 0 or {} are allowed",
                    shown_index(file_), left, sequences_, documents_, sequences_);
  }
}

std::int64_t MegatronIndex::token_bytes() const {
  return type_ == MegatronType::kU8 ? 1 : type_ == MegatronType::kI32 ? 4 : 2;
}

std::string_view MegatronIndex::format() const {
  return type_ == MegatronType::kU8    ? "Megatron u8"
         : type_ == MegatronType::kI32 ? "Megatron i32"
                                       : "Megatron u16";
}

std::int64_t MegatronIndex::count_tokens() const {
  Column<std::int32_t> lengths(file_, kHeader, sequences_);
  Column<std::int64_t> pointers(file_, kHeader + 4 * sequences_, sequences_);
  const std::int64_t bytes = token_bytes();
  std::int64_t tokens = 0;
  for (std::uint64_t i = 0; i < sequences_; ++i) {
    if (lengths[i] < 0 || pointers[i] != tokens * bytes) {
      throw_bad_input(
          "{}: sequence {} has {} tokens at byte {}, byte {} is needed: sequences must be "
          "contiguous",
          shown_index(file_), i, lengths[i], pointers[i], tokens * bytes);
    }
    tokens += lengths[i];
  }
  return tokens;
}

void MegatronIndex::for_each_document(const DocumentVisitor& visit) const {
  Column<std::int32_t> lengths(file_, kHeader, sequences_);
  Column<std::int64_t> firsts(file_, kHeader + 12 * sequences_, documents_);
  std::uint64_t sequence = 0;
  std::int64_t begin = 0;
  const auto end_at = [&](std::uint64_t next) {
    std::int64_t end = begin;
    for (; sequence < next; ++sequence) {
      end += lengths[sequence];
    }
    if (end > begin) {
      visit(begin, end);
    }
    begin = end;
  };
  for (std::uint64_t i = 0; i < documents_; ++i) {
    const std::int64_t next = firsts[i];
    if (next < static_cast<std::int64_t>(sequence) ||
        next > static_cast<std::int64_t>(sequences_)) {
      throw_bad_input("{}: document {} begins with sequence {}, allowed are {} to {}",
                      shown_index(file_), i, next, sequence, sequences_);
    }
    end_at(static_cast<std::uint64_t>(next));
  }
  end_at(sequences_);
}

}  // namespace regroup
