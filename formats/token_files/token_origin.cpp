#include "formats/token_files/token_origin.h"

#include <algorithm>
#include <cstring>
#include <span>

#include <fmt/format.h>

#include "formats/base/checksum.h"
#include "formats/base/stored_number.h"

namespace regroup {
namespace {

// The record: the name, the parts, the bytes of the name (u32) and the magic.
constexpr std::string_view kOriginMagic{"regroup origin 1"};
constexpr std::uint64_t kOriginBytes =
    sizeof(TokenizerDigest::parts) + sizeof(std::uint32_t) + kOriginMagic.size();
constexpr std::size_t kMostNameBytes = 4096;

std::string with_plain_marks(std::string_view text) {
  constexpr std::string_view kMark = "\u2581";
  std::string plain(text);
  for (std::size_t at = plain.find(kMark); at != std::string::npos; at = plain.find(kMark, at)) {
    plain.replace(at, kMark.size(), " ");
  }
  return plain;
}

}  // namespace

void TokenizerDigest::add(std::int64_t id, std::string_view text) {
  if (text == fmt::format("[PAD{}]", id)) {
    return;
  }
  const std::string token = fmt::format("{}:{}", id, with_plain_marks(text));
  parts[static_cast<std::size_t>(id) % kParts] +=
      static_cast<std::uint32_t>(xxh64(std::as_bytes(std::span(token))) >> 32);
}

std::size_t TokenizerDigest::equal_parts(const TokenizerDigest& other) const {
  std::size_t equal = 0;
  for (std::size_t i = 0; i < kParts; ++i) {
    equal += parts[i] == other.parts[i] ? 1 : 0;
  }
  return equal;
}

std::string origin_record(const TokenOrigin& origin) {
  std::string record = origin.tokenizer.substr(0, kMostNameBytes);
  const auto name_bytes = static_cast<std::uint32_t>(record.size());
  const auto append = [&](const void* data, std::size_t bytes) {
    record.append(static_cast<const char*>(data), bytes);
  };
  append(origin.digest.parts.data(), sizeof origin.digest.parts);
  append(&name_bytes, sizeof name_bytes);
  return record.append(kOriginMagic);
}

std::optional<TokenOrigin> origin_at_end(const File& file, std::uint64_t& bytes) {
  if (bytes < kOriginBytes) {
    return std::nullopt;
  }
  std::string magic(kOriginMagic.size(), '\0');
  file.read_at(bytes - kOriginMagic.size(), std::as_writable_bytes(std::span(magic)));
  if (magic != kOriginMagic) {
    return std::nullopt;
  }
  const auto name_bytes =
      read_number<std::uint32_t>(file, bytes - kOriginMagic.size() - sizeof(std::uint32_t));
  if (name_bytes > kMostNameBytes || name_bytes > bytes - kOriginBytes) {
    return std::nullopt;
  }
  TokenOrigin origin;
  origin.tokenizer.resize(name_bytes);
  bytes -= kOriginBytes + name_bytes;
  file.read_at(bytes, std::as_writable_bytes(std::span(origin.tokenizer)));
  file.read_at(bytes + name_bytes, std::as_writable_bytes(std::span(origin.digest.parts)));
  return origin;
}

std::optional<TokenOrigin> origin_of_tokens(const std::filesystem::path& path) {
  std::filesystem::path index = path;
  index.replace_extension(".idx");
  const bool indexed =
      (path.extension() == ".bin" || path.extension() == ".idx") && path_exists(index);
  const File file = File::open(indexed ? index : path);
  std::uint64_t bytes = file.size();
  return origin_at_end(file, bytes);
}

}  // namespace regroup
