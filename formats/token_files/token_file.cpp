#include "formats/token_files/token_file.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include "formats/base/error.h"
#include "formats/base/interruption.h"
#include "formats/base/printable.h"
#include "formats/base/stored_number.h"
#include "formats/token_files/raw_tokens.h"
#include "formats/token_files/token_origin.h"

namespace regroup {
namespace {

constexpr std::string_view kNumpyMagic{"\x93NUMPY", 6};
constexpr std::uint64_t kLlmcHeader = 256 * sizeof(std::int32_t);
constexpr std::int32_t kLlmcMagicNarrow = 20240520;  // version 1, u16
constexpr std::int32_t kLlmcMagicWide = 20240801;    // version 7, u32

std::string shown(const File& file) { return printable(file.path().string(), 0); }

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

}  // namespace

TokenFile TokenFile::open(const std::filesystem::path& path) {
  std::optional<MegatronIndex> index = MegatronIndex::beside(path);
  std::filesystem::path data = path;
  TokenFile tokens(File::open(index ? data.replace_extension(".bin") : data));
  if (index) {
    tokens.index_ = std::move(index);
    tokens.check_megatron_index();
  } else {
    tokens.read_header();
  }
  if (tokens.size_ == 0) {
    throw_bad_input("{}: holds no tokens", shown(tokens.file_));
  }
  return tokens;
}

void TokenFile::read_header() {
  const File& file = file_;
  std::array<char, 6> start{};
  file.read_at(0, std::as_writable_bytes(std::span(start))
                      .first(std::min<std::uint64_t>(file.size(), start.size())));
  std::int32_t magic = 0;
  std::memcpy(&magic, start.data(), sizeof magic);
  if (std::string_view(start.data(), start.size()) == kNumpyMagic) {
    read_numpy_header();
  } else if (magic == kLlmcMagicNarrow || magic == kLlmcMagicWide) {
    read_llmc_header(magic == kLlmcMagicWide);
  } else {
    check_raw_tokens(file);
    set_data(0, file.size(), 2, "raw u16");
  }
}

void TokenFile::check_megatron_index() {
  const std::int64_t tokens = index_->count_tokens();
  set_data(0, file_.size(), index_->token_bytes(), index_->format());
  if (tokens != size_) {
    throw_bad_input("{}: {} tokens, its index says {}", shown(file_), size_, tokens);
  }
}

void TokenFile::set_data(std::uint64_t offset, std::uint64_t end, std::int64_t token_bytes,
                         std::string_view format) {
  const std::uint64_t bytes = end - offset;
  if (bytes % token_bytes != 0) {
    throw_bad_input("{}: {} bytes of token ids, not a multiple of {} ({})", shown(file_), bytes,
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
    throw_bad_input("{}: {} bytes, an llm.c header alone has {}", shown(file_), file_.size(),
                    kLlmcHeader);
  }
  const auto version = read_number<std::int32_t>(file_, 4);
  if (version != allowed) {
    throw_bad_input("{}: llm.c token file of version {}, allowed is {}", shown(file_), version,
                    allowed);
  }
  set_data(kLlmcHeader, file_.size(), wide ? 4 : 2, wide ? "llm.c u32" : "llm.c u16");
  const auto count = read_number<std::int32_t>(file_, 8);
  if (count != size_) {
    throw_bad_input("{}: header says {} tokens, the file holds {}", shown(file_), count, size_);
  }
}

void TokenFile::read_numpy_header() {
  const std::uint64_t prefix = read_number<std::uint8_t>(file_, 6) == 1 ? 10 : 12;
  const std::uint64_t length =
      prefix == 10 ? read_number<std::uint16_t>(file_, 8) : read_number<std::uint32_t>(file_, 8);
  if (length > 4096 || prefix + length > file_.size()) {
    throw_bad_input("{}: numpy header of {} bytes does not fit", shown(file_), length);
  }
  std::string header(length, '\0');
  file_.read_at(prefix, std::as_writable_bytes(std::span(header)));
  const std::string descr = numpy_field(header, "descr", "'([^']*)'");
  const std::string shape = numpy_field(header, "shape", "\\((\\d{1,18}),\\)");
  if ((descr != "<u2" && descr != "<u4") || shape.empty()) {
    throw_bad_input("{}: numpy array {}, allowed are one dimension of <u2 or <u4", shown(file_),
                    printable(header));
  }
  std::uint64_t end = file_.size();
  origin_at_end(file_, end);  // may be behind the array
  set_data(prefix + length, std::max(end, prefix + length), descr == "<u2" ? 2 : 4,
           descr == "<u2" ? "numpy u16" : "numpy u32");
  if (std::stoll(shape) != size_) {
    throw_bad_input("{}: header says {} tokens, the file holds {}", shown(file_), shape, size_);
  }
}

void TokenFile::read(std::int64_t begin, std::span<std::int64_t> ids) const {
  const std::uint64_t offset = offset_ + static_cast<std::uint64_t>(begin * token_bytes_);
  if (token_bytes_ == 1) {
    read_ids<std::uint8_t>(file_, offset, ids);
  } else if (token_bytes_ == 2) {
    read_ids<std::uint16_t>(file_, offset, ids);
  } else {
    read_ids<std::uint32_t>(file_, offset, ids);
  }
}

void TokenFile::check_vocabulary(std::int64_t vocab_size) const {
  constexpr std::int64_t kChunk = 1 << 18;
  if (vocab_size >= (std::int64_t{1} << (8 * token_bytes_))) {
    return;
  }
  std::vector<std::int64_t> ids(std::min(kChunk, size_));
  for (std::int64_t begin = 0; begin < size_; begin += kChunk) {
    check_stop();
    const auto chunk = std::span(ids).first(std::min(kChunk, size_ - begin));
    read(begin, chunk);
    const auto wrong =
        std::find_if(chunk.begin(), chunk.end(), [&](std::int64_t id) { return id >= vocab_size; });
    if (wrong != chunk.end()) {
      throw_bad_input(
          "{}: token {} is {}, the model's vocabulary ends at {}; tokenized for another "
          "model?",
          shown(file_), begin + (wrong - chunk.begin()), *wrong, vocab_size - 1);
    }
  }
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
        shown(file_));
  }
  constexpr std::int64_t kChunk = 1 << 18;
  std::vector<std::int64_t> ids(std::min(kChunk, size_));
  std::int64_t document = 0;
  for (std::int64_t begin = 0; begin < size_; begin += kChunk) {
    const auto chunk = std::span(ids).first(std::min(kChunk, size_ - begin));
    read(begin, chunk);
    for (std::size_t i = 0; i < chunk.size(); ++i) {
      const std::int64_t next = begin + static_cast<std::int64_t>(i) + (mark->ends ? 1 : 0);
      if (chunk[i] == mark->token && next > document) {
        visit(document, next);
        document = next;
      }
    }
  }
  if (document < size_) {
    visit(document, size_);
  }
}

}  // namespace regroup
