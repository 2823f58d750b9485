#include "formats/vocabulary/token_file.h"

#include <algorithm>
#include <charconv>
#include <regex>

#include "formats/base/error.h"
#include "formats/base/printable.h"
#include "formats/vocabulary/token_writer.h"

namespace regroup {
namespace {

constexpr std::uint64_t kSample = 64U << 10;
// Fewer bytes or ids are not enough to decide. A byte of an id is printable with a probability of
// about one in two or three. Four ids therefore look like text in one of a thousand files, and 64
// KiB of ids never do.
constexpr std::size_t kFewestTextBytes = 8, kFewestIds = 32;

// The largest lower and upper halves of possible 32-bit ids.
struct Halves {
  unsigned lower = 0, upper = 0;
  unsigned lower_bytes = 0;  // bitwise or of the lower bytes of all 16-bit numbers
};

Halves halves_of(std::string_view sample) {
  Halves halves;
  for (std::size_t i = 0; i + 1 < sample.size(); i += 2) {
    const unsigned id = number_at<std::uint16_t>(sample, i);
    unsigned& most = i % 4 == 0 ? halves.lower : halves.upper;
    most = std::max(most, id);
    halves.lower_bytes |= id & 0xff;
  }
  return halves;
}

bool has_32_bits(const Halves& halves) {
  constexpr unsigned kMostUpper = 16;  // allows vocabularies of a million
  return (halves.upper == 0 && halves.lower > 0) ||
         (halves.upper < kMostUpper && halves.lower >= 256);
}

// Of what has 32 bits.
bool has_64_bits(std::string_view sample) {
  bool zeros = true;
  for (std::size_t i = 0; i + 7 < sample.size(); i += 8) {
    zeros = zeros && sample.substr(i + 4, 4) == std::string_view("\0\0\0", 4);
  }
  return zeros;
}

bool is_big_endian(const Halves& halves) {
  return halves.lower_bytes == 0 && std::max(halves.lower, halves.upper) > 0;
}

// The bytes of an id in a file without a header: 2, or 4 or 8 if the first 64 KiB have zeros where
// such ids have them. Throws kBadInput if the file holds no ids: text, big-endian ids, archives,
// weight files. The message says what to do.
std::int64_t raw_token_bytes(const File& file) {
  const std::string sample = read_start(file, kSample);
  const std::string where = file.where();
  const std::optional<FileKind> kind = kind_of_bytes(sample);
  if (kind && !kind->hidden_text) {  // two bytes of a text's encoding may be an id
    throw_bad_input(
        "{}: is {}, not a token file: allowed are raw u16, .npy, llm.c's and Megatron's", where,
        kind->name);
  }
  if (sample.size() >= kFewestTextBytes && is_text(sample)) {
    throw_bad_input(
        "{}: is text, token ids are needed: regroup tokenize {} --tokenizer MODEL -o tokens.bin "
        "makes them",
        where, where);
  }
  if (sample.size() / 2 < kFewestIds) {
    return 2;
  }
  const Halves halves = halves_of(sample);
  if (is_big_endian(halves)) {
    throw_bad_input(
        "{}: the lower byte of every 16-bit id is 0: big-endian ids or text in UTF-16; needed are "
        "little-endian ids",
        where);
  }
  const bool wide = file.size() % 4 == 0 && has_32_bits(halves);
  return !wide ? 2 : file.size() % 8 == 0 && has_64_bits(sample) ? 8 : 4;
}

constexpr std::uint64_t kHeader = 9 + 8 + 1 + 8 + 8;

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

// A type of ids, by what a header calls it.
template <typename Name>
struct StoredType {
  Name name;
  std::int64_t bytes;
  std::string_view format;
};

constexpr auto kMegatronTypes =
    std::to_array<StoredType<MegatronType>>({{MegatronType::kU8, 1, "Megatron u8"},
                                             {MegatronType::kI32, 4, "Megatron i32"},
                                             {MegatronType::kU16, 2, "Megatron u16"}});

constexpr auto kNumpyTypes = std::to_array<StoredType<std::string_view>>({{"<u2", 2, "numpy u16"},
                                                                          {"<u4", 4, "numpy u32"},
                                                                          {"<i4", 4, "numpy i32"},
                                                                          {"<i8", 8, "numpy i64"},
                                                                          {"<u8", 8, "numpy u64"},
                                                                          {"|u1", 1, "numpy u8"}});

// A bad index is an error. Without it, the tokens would be read in another format.
void check_magic(const File& file) {
  const std::string start = read_start(file, kMegatronMagic.size());
  if (start != kMegatronMagic) {
    throw_bad_input(
        "{}: {}, a Megatron index begins with MMIDIDX: recreate it, or move it away from its "
        ".bin if that file has no index",
        file.where(), start.empty() ? "empty" : "not a Megatron index");
  }
}

// Whether the name exists, even as a dangling link.
bool is_named(const std::filesystem::path& path) {
  std::error_code fault;
  return std::filesystem::symlink_status(path, fault).type() !=
         std::filesystem::file_type::not_found;
}

constexpr std::string_view kNumpyMagic{"\x93NUMPY", 6};
constexpr std::uint64_t kLlmcHeader = 256 * sizeof(std::int32_t);
constexpr std::int32_t kLlmcMagicNarrow = 20240520;  // version 1, u16
constexpr std::int32_t kLlmcMagicWide = 20240801;    // version 7, u32

template <typename T>
void read_ids(const File& file, std::uint64_t offset, std::span<std::int64_t> ids) {
  std::vector<T> stored(ids.size());
  file.read_at(offset, std::as_writable_bytes(std::span(stored)));
  std::copy(stored.begin(), stored.end(), ids.begin());
}

// The value of a key in numpy's header, a Python dict: {'descr': '<u2', 'shape': (10,), …}.
std::string numpy_field(const std::string& header, const char* key, const char* value) {
  std::smatch match;
  const std::regex pattern(std::string("'") + key + "'\\s*:\\s*" + value);
  return std::regex_search(header, match, pattern) ? match[1].str() : std::string();
}

// The product of "40, 64", or 0 for what is no such list or too large.
std::int64_t elements_of_shape(const std::string& shape) {
  constexpr std::int64_t kMost = std::int64_t{1} << 56;
  std::int64_t elements = shape.empty() ? 0 : 1;
  const char* at = shape.data();
  const char* const end = at + shape.size();
  while (at != end && elements > 0) {
    std::int64_t size = 0;
    const auto [stopped, fault] = std::from_chars(at, end, size);
    elements = fault == std::errc() && size > 0 && size <= kMost / elements ? elements * size : 0;
    at = std::find_if(stopped, end, [](char letter) { return letter >= '0' && letter <= '9'; });
  }
  return elements;
}

}  // namespace

std::optional<std::filesystem::path> index_beside(const std::filesystem::path& path) {
  std::filesystem::path index = path;
  index.replace_extension(".idx");
  const bool may_have_one = path.extension() == ".bin" || path.extension() == ".idx";
  return may_have_one && is_named(index) ? std::optional(index) : std::nullopt;
}

std::optional<MegatronIndex> MegatronIndex::beside(const std::filesystem::path& path) {
  const auto index = index_beside(path);
  return index ? std::optional(MegatronIndex(File::open(*index))) : std::nullopt;
}

MegatronIndex::MegatronIndex(File file) : file_(std::move(file)) {
  check_magic(file_);
  if (file_.size() < kHeader) {
    throw_bad_input("{}: {} bytes, a Megatron index has {} or more", file_.where(), file_.size(),
                    kHeader);
  }
  const auto version = read_number<std::uint64_t>(file_, 9);
  if (version != kMegatronVersion) {
    throw_bad_input("{}: Megatron index of version {}, allowed is 1", file_.where(), version);
  }
  const auto type = read_number<std::uint8_t>(file_, 17);
  const auto* const tokens = std::ranges::find(kMegatronTypes, static_cast<MegatronType>(type),
                                               &StoredType<MegatronType>::name);
  if (tokens == kMegatronTypes.end()) {
    throw_bad_input("{}: tokens of Megatron's type {}, allowed are 1 (u8), 4 (i32) and 8 (u16)",
                    file_.where(), type);
  }
  token_bytes_ = tokens->bytes;
  format_ = tokens->format;
  sequences_ = read_number<std::uint64_t>(file_, 18);
  documents_ = read_number<std::uint64_t>(file_, 26);
  std::uint64_t end = file_.size();
  origin_at_end(file_, end);  // may be behind the columns
  const std::uint64_t body = std::max(end, kHeader) - kHeader;
  // Divides instead of multiplying, so that no count can overflow.
  if (sequences_ > body / 12 || documents_ > (body - 12 * sequences_) / 8) {
    throw_bad_input("{}: {} sequences and {} documents do not fit into {} bytes", file_.where(),
                    sequences_, documents_, file_.size());
  }
  // Megatron's multimodal data sets end with one byte per sequence, its mode.
  const std::uint64_t left = body - 12 * sequences_ - 8 * documents_;
  if (left != 0 && left != sequences_) {
    throw_bad_input("{}: {} bytes after {} sequences and {} documents, 0 or {} are allowed",
                    file_.where(), left, sequences_, documents_, sequences_);
  }
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
          file_.where(), i, lengths[i], pointers[i], tokens * bytes);
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
                      file_.where(), i, next, sequence, sequences_);
    }
    end_at(static_cast<std::uint64_t>(next));
  }
  end_at(sequences_);
}

TokenFile TokenFile::open(const std::filesystem::path& path, std::string name) {
  std::optional<MegatronIndex> index = MegatronIndex::beside(path);
  std::filesystem::path data = path;
  TokenFile tokens(File::open(index ? data.replace_extension(".bin") : data));
  tokens.name_ = name.empty() ? printable_path(tokens.path()) : std::move(name);
  if (index) {
    const std::int64_t count = index->count_tokens();
    tokens.set_data(0, tokens.file_.size(), index->token_bytes(), index->format());
    if (count != tokens.size_) {
      throw_bad_input("{}: {} tokens, its index says {}", tokens.file_.where(), tokens.size_,
                      count);
    }
    tokens.index_ = std::move(index);
  } else {
    tokens.read_header();
  }
  if (tokens.size_ == 0) {
    throw_bad_input("{}: holds no tokens", tokens.file_.where());
  }
  return tokens;
}

void TokenFile::read_header() {
  const std::string start = read_start(file_, kNumpyMagic.size());
  const std::int32_t magic = start.size() < sizeof magic ? 0 : number_at<std::int32_t>(start);
  if (start == kNumpyMagic) {
    read_numpy_header();
  } else if (magic == kLlmcMagicNarrow || magic == kLlmcMagicWide) {
    read_llmc_header(magic == kLlmcMagicWide);
  } else {
    const std::int64_t bytes = raw_token_bytes(file_);
    set_data(0, file_.size(), bytes, bytes == 2 ? "raw u16" : bytes == 4 ? "raw u32" : "raw u64");
  }
}

void TokenFile::set_data(std::uint64_t offset, std::uint64_t end, std::int64_t token_bytes,
                         std::string_view format) {
  const std::uint64_t bytes = end - offset;
  if (bytes % token_bytes != 0) {
    throw_bad_input("{}: {} bytes of token ids, not a multiple of {} ({})", file_.where(), bytes,
                    token_bytes, format);
  }
  offset_ = offset;
  token_bytes_ = token_bytes;
  format_ = format;
  size_ = static_cast<std::int64_t>(bytes) / token_bytes;
}

void TokenFile::read_llmc_header(bool wide) {
  const std::int32_t allowed = wide ? 7 : 1;
  if (file_.size() < kLlmcHeader) {
    throw_bad_input("{}: {} bytes, an llm.c header alone has {}", file_.where(), file_.size(),
                    kLlmcHeader);
  }
  const auto version = read_number<std::int32_t>(file_, 4);
  if (version != allowed) {
    throw_bad_input("{}: llm.c token file of version {}, allowed is {}", file_.where(), version,
                    allowed);
  }
  set_data(kLlmcHeader, file_.size(), wide ? 4 : 2, wide ? "llm.c u32" : "llm.c u16");
  const auto count = read_number<std::int32_t>(file_, 8);
  if (count != size_) {
    throw_bad_input("{}: header says {} tokens, the file holds {}", file_.where(), count, size_);
  }
}

void TokenFile::read_numpy_header() {
  const std::uint64_t prefix = read_number<std::uint8_t>(file_, 6) == 1 ? 10 : 12;
  const std::uint64_t length =
      prefix == 10 ? read_number<std::uint16_t>(file_, 8) : read_number<std::uint32_t>(file_, 8);
  if (length > 4096 || prefix + length > file_.size()) {
    throw_bad_input("{}: numpy header of {} bytes does not fit", file_.where(), length);
  }
  const std::string header = read_bytes(file_, prefix, length);
  const std::string descr = numpy_field(header, "descr", "'([^']*)'");
  const std::string shape = numpy_field(header, "shape", "\\(([0-9, ]*)\\)");
  const auto* const type =
      std::ranges::find(kNumpyTypes, descr, &StoredType<std::string_view>::name);
  const std::int64_t elements = elements_of_shape(shape);
  const bool by_rows = shape.find_first_not_of(", ", shape.find(',')) == std::string::npos ||
                       !numpy_field(header, "fortran_order", "(False)").empty();
  if (type == kNumpyTypes.end() || elements < 1 || !by_rows) {
    throw_bad_input(
        "{}: a numpy array of {} with the shape ({}){}, allowed are integers of 16 bits without a "
        "sign, or of 32 or 64, row after row: numpy.save(FILE, ids.astype(numpy.uint32))",
        file_.where(), descr.empty() ? "unknown type" : printable(descr, 60), printable(shape, 60),
        by_rows ? "" : ", column after column");
  }
  std::uint64_t end = file_.size();
  origin_at_end(file_, end);  // may be behind the array
  set_data(prefix + length, std::max(end, prefix + length), type->bytes, type->format);
  if (elements != size_) {
    throw_bad_input("{}: header says {} tokens, the file holds {}", file_.where(), elements, size_);
  }
}

void TokenFile::read(std::int64_t begin, std::span<std::int64_t> ids) const {
  const std::uint64_t offset = offset_ + static_cast<std::uint64_t>(begin * token_bytes_);
  if (token_bytes_ == 1) {
    read_ids<std::uint8_t>(file_, offset, ids);
  } else if (token_bytes_ == 2) {
    read_ids<std::uint16_t>(file_, offset, ids);
  } else if (token_bytes_ == 4) {
    read_ids<std::uint32_t>(file_, offset, ids);
  } else {
    read_ids<std::int64_t>(file_, offset, ids);
  }
}

void TokenFile::for_each_chunk(
    const std::function<void(std::int64_t begin, std::span<const std::int64_t> ids)>& visit) const {
  constexpr std::int64_t kChunk = 1 << 18;
  std::vector<std::int64_t> ids(std::min(kChunk, size_));
  for (std::int64_t begin = 0; begin < size_; begin += kChunk) {
    const auto chunk = std::span(ids).first(std::min(kChunk, size_ - begin));
    read(begin, chunk);
    visit(begin, chunk);
  }
}

void TokenFile::check_vocabulary(std::int64_t vocab_size) const {
  if (token_bytes_ < 8 && vocab_size >= (std::int64_t{1} << (8 * token_bytes_))) {
    return;
  }
  for_each_chunk([&](std::int64_t begin, std::span<const std::int64_t> ids) {
    check_stop();
    const auto wrong =
        std::ranges::find_if(ids, [&](std::int64_t id) { return id < 0 || id >= vocab_size; });
    if (wrong != ids.end()) {
      throw_bad_input(
          "{}: token {} is {}, the model's vocabulary ends at {}; tokenized for another "
          "model?",
          file_.where(), begin + (wrong - ids.begin()), *wrong, vocab_size - 1);
    }
  });
}

void TokenFile::for_each_document(const std::optional<DocumentMark>& mark,
                                  const DocumentVisitor& visit) const {
  if (index_) {
    index_->for_each_document(visit);
    return;
  }
  if (!mark) {
    throw_usage(
        "{}: its documents are unknown: it has no Megatron index, and no token was given "
        "that ends or begins them",
        file_.where());
  }
  std::int64_t document = 0;
  for_each_chunk([&](std::int64_t begin, std::span<const std::int64_t> ids) {
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const std::int64_t next = begin + static_cast<std::int64_t>(i) + (mark->ends ? 1 : 0);
      if (ids[i] == mark->token && next > document) {
        visit(document, next);
        document = next;
      }
    }
  });
  if (document < size_) {
    visit(document, size_);
  }
}

}  // namespace regroup
