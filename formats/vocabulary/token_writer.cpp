#include "formats/vocabulary/token_writer.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>

#include <fmt/format.h>

#include "formats/base/checksum.h"
#include "formats/base/error.h"
#include "formats/base/printable.h"
#include "formats/vocabulary/token_file.h"
#include "formats/vocabulary/vocabulary.h"

namespace regroup {
namespace {

// The record: the name, the parts, the bytes of the name (u32) and the magic.
constexpr std::string_view kOriginMagic{"regroup origin 1"};
constexpr std::uint64_t kOriginBytes =
    sizeof(TokenizerDigest::parts) + sizeof(std::uint32_t) + kOriginMagic.size();
constexpr std::size_t kMostNameBytes = 4096;

std::string origin_record(const TokenOrigin& origin) {
  std::string record = origin.tokenizer.substr(0, kMostNameBytes);
  const auto name_bytes = static_cast<std::uint32_t>(record.size());
  append_number(record, origin.digest.parts);
  append_number(record, name_bytes);
  return record.append(kOriginMagic);
}

namespace fs = std::filesystem;

constexpr std::int64_t kNarrowVocabulary = 1 << 16;
constexpr std::uint64_t kNumpyHeader = 128;
constexpr std::int64_t kLongestSequence = std::numeric_limits<std::int32_t>::max();
constexpr const char* kData = "data";
constexpr const char* kIndex = "index";
constexpr const char* kLengths = "lengths";

struct LayoutName {
  TokenLayout layout;
  std::string_view name;
};
constexpr std::array<LayoutName, 3> kLayouts{{{TokenLayout::kMegatron, "megatron"},
                                              {TokenLayout::kNumpy, "npy"},
                                              {TokenLayout::kRaw, "raw"}}};

std::int64_t checked_vocabulary(std::int64_t vocabulary, TokenLayout layout) {
  if (vocabulary < 1 || vocabulary > std::numeric_limits<std::int32_t>::max()) {
    throw_usage("a vocabulary of {} tokens, allowed are 1 to 2^31 - 1", vocabulary);
  }
  if (layout == TokenLayout::kRaw && vocabulary > kNarrowVocabulary) {
    throw_usage(
        "raw files have 16-bit ids, a vocabulary of {} tokens needs more: write "
        "megatron or npy",
        vocabulary);
  }
  return vocabulary;
}

// The path of the index, which must not exist; empty if the layout has none.
fs::path index_of(const fs::path& destination, TokenLayout layout) {
  if (layout != TokenLayout::kMegatron) {
    return {};
  }
  if (destination.extension() != ".bin") {
    throw_usage("{}: Megatron's token files are named .bin, and get an .idx of the same name",
                printable_path(destination));
  }
  fs::path index = destination;
  index.replace_extension(".idx");
  check_is_new(index);
  return index;
}

// Version 1.0 of https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html, with the
// length that numpy writes.
std::string numpy_header(std::int64_t tokens, std::int64_t token_bytes) {
  std::string header("\x93NUMPY\x01\x00\x76\x00", 10);
  header += fmt::format("{{'descr': '<u{}', 'fortran_order': False, 'shape': ({},), }}",
                        token_bytes, tokens);
  header.resize(kNumpyHeader - 1, ' ');
  return header + '\n';
}

template <typename T>
void append_number(AppendedFile& file, T number) {
  file.append(std::as_bytes(std::span(&number, 1)));
}

}  // namespace

void TokenizerDigest::add(std::int64_t id, std::string_view text) {
  if (text == fmt::format("[PAD{}]", id)) {
    return;
  }
  const std::string token = fmt::format("{}:{}", id, with_plain_spaces(std::string(text)));
  parts[static_cast<std::size_t>(id) % kParts] +=
      static_cast<std::uint32_t>(xxh64(std::as_bytes(std::span(token))) >> 32);
}

std::size_t TokenizerDigest::equal_parts(const TokenizerDigest& other) const {
  return std::inner_product(parts.begin(), parts.end(), other.parts.begin(), std::size_t{0},
                            std::plus<>(), std::equal_to<>());
}

std::optional<TokenOrigin> origin_at_end(const File& file, std::uint64_t& bytes) {
  if (bytes < kOriginBytes ||
      read_bytes(file, bytes - kOriginMagic.size(), kOriginMagic.size()) != kOriginMagic) {
    return std::nullopt;
  }
  const auto name_bytes =
      read_number<std::uint32_t>(file, bytes - kOriginMagic.size() - sizeof(std::uint32_t));
  if (name_bytes > kMostNameBytes || name_bytes > bytes - kOriginBytes) {
    return std::nullopt;
  }
  bytes -= kOriginBytes + name_bytes;
  using Parts = decltype(TokenizerDigest::parts);
  return TokenOrigin{read_bytes(file, bytes, name_bytes),
                     {read_number<Parts>(file, bytes + name_bytes)}};
}

std::optional<TokenOrigin> origin_of_tokens(const std::filesystem::path& path) {
  const File file = File::open(index_beside(path).value_or(path));
  std::uint64_t bytes = file.size();
  return origin_at_end(file, bytes);
}

std::string_view name_of(TokenLayout layout) {
  return std::ranges::find(kLayouts, layout, &LayoutName::layout)->name;
}

TokenLayout parse_token_layout(std::string_view text) {
  const auto* const found = std::ranges::find(kLayouts, text, &LayoutName::name);
  if (found == kLayouts.end()) {
    throw_usage("layout is \"{}\", allowed are megatron, npy and raw", printable(text));
  }
  return found->layout;
}

TokenWriter::TokenWriter(const fs::path& destination, TokenLayout layout, std::int64_t vocabulary)
    : layout_(layout),
      vocabulary_(checked_vocabulary(vocabulary, layout)),
      token_bytes_(vocabulary <= kNarrowVocabulary ? 2 : 4),
      index_path_(index_of(destination, layout)),
      staged_(destination),
      data_(staged_.path() / kData) {
  if (layout == TokenLayout::kMegatron) {
    lengths_.emplace(staged_.path() / kLengths);
  } else if (layout == TokenLayout::kNumpy) {
    data_.append(numpy_header(0, token_bytes_));
  }
}

void TokenWriter::write(std::span<const std::uint32_t> ids) {
  const auto wrong = std::ranges::find_if(ids, [&](std::uint32_t id) { return id >= vocabulary_; });
  if (wrong != ids.end()) {
    throw_usage("token {} is outside a vocabulary of {}", *wrong, vocabulary_);
  }
  while (!ids.empty()) {
    const auto room = static_cast<std::size_t>(kLongestSequence - sequence_tokens_);
    const auto part = ids.first(std::min(ids.size(), room));
    if (token_bytes_ == 4) {
      data_.append(std::as_bytes(part));
    } else {
      const std::vector<std::uint16_t> narrow(part.begin(), part.end());
      data_.append(std::as_bytes(std::span(narrow)));
    }
    sequence_tokens_ += static_cast<std::int64_t>(part.size());
    tokens_ += static_cast<std::int64_t>(part.size());
    ids = ids.subspan(part.size());
    if (sequence_tokens_ == kLongestSequence) {
      end_sequence();
    }
  }
}

void TokenWriter::end_sequence() {
  if (sequence_tokens_ > 0 && lengths_) {
    const auto length = static_cast<std::int32_t>(sequence_tokens_);
    append_number(*lengths_, document_goes_on_ ? -length : length);
  }
  sequences_ += sequence_tokens_ > 0 ? 1 : 0;
  document_goes_on_ = document_goes_on_ || sequence_tokens_ > 0;
  sequence_tokens_ = 0;
}

void TokenWriter::end_document() {
  end_sequence();
  documents_ += document_goes_on_ ? 1 : 0;
  document_goes_on_ = false;
}

// The three columns are consecutive, so the lengths are read once for each.
void TokenWriter::write_index() {
  AppendedFile index(staged_.path() / kIndex);
  const auto type = token_bytes_ == 2 ? MegatronType::kU16 : MegatronType::kI32;
  index.append(kMegatronMagic);
  append_number(index, kMegatronVersion);
  append_number(index, type);
  append_number(index, static_cast<std::uint64_t>(sequences_));
  append_number(index, static_cast<std::uint64_t>(documents_ + 1));
  const auto for_each_length = [&](const auto& visit) {
    std::vector<std::int32_t> lengths(1 << 16);
    for (std::int64_t first = 0; first < sequences_; first += std::ssize(lengths)) {
      lengths.resize(std::min<std::size_t>(lengths.size(), sequences_ - first));
      lengths_->file().read_at(4 * first, std::as_writable_bytes(std::span(lengths)));
      std::ranges::for_each(lengths, visit);
    }
  };
  for_each_length([&](std::int32_t length) { append_number(index, std::abs(length)); });
  std::int64_t byte = 0;
  for_each_length([&](std::int32_t length) {
    append_number(index, byte);
    byte += std::abs(length) * token_bytes_;
  });
  std::int64_t sequence = 0;
  for_each_length([&](std::int32_t length) {
    if (length > 0) {
      append_number(index, sequence);
    }
    ++sequence;
  });
  append_number(index, sequence);
  append_origin(index);
  index.flush();
  index.file().sync_and_close();
}

void TokenWriter::append_origin(AppendedFile& file) const {
  if (origin_) {
    file.append(origin_record(*origin_));
  }
}

void TokenWriter::publish() {
  end_document();
  if (layout_ == TokenLayout::kNumpy) {
    append_origin(data_);
  }
  data_.flush();
  if (layout_ == TokenLayout::kNumpy) {
    data_.file().write_at(0, numpy_header(tokens_, token_bytes_));
  }
  data_.file().sync_and_close();
  if (lengths_) {
    lengths_->flush();
    write_index();
    staged_.publish_beside(kIndex, index_path_);
  }
  staged_.publish_file(kData);
}

}  // namespace regroup
