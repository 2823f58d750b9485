#include "tokens/hf/token_model.h"

#include <algorithm>

#include <fmt/format.h>

namespace regroup {

std::unique_ptr<TokenModel> read_token_model(const JsonFields& fields, const TokenTexts& special) {
  // Files before version 0.9 do not name the kind of a BPE.
  const std::string type =
      fields.optional_text("type").value_or(fields.at("merges").is_null() ? "" : "BPE");
  if (type == "BPE") {
    return read_bpe(fields, special);
  }
  if (type == "Unigram") {
    return read_unigram(fields, special);
  }
  if (type == "WordPiece") {
    return read_word_piece(fields, special);
  }
  if (type == "WordLevel") {
    return read_word_level(fields, special);
  }
  fields.refuse("type", "a model that regroup supports");
}

TokenIds read_vocabulary_ids(const JsonFields& model) {
  constexpr std::size_t kMaxTokens = 4U << 20;
  const JsonFields vocabulary = model.object("vocab");
  const nlohmann::json& listed = vocabulary.json();
  if (listed.empty() || listed.size() > kMaxTokens) {
    model.refuse("vocab", "an object of 1 to 4,194,304 tokens");
  }
  TokenIds ids;
  ids.reserve(listed.size());
  std::size_t bytes = 0;
  for (const auto& [text, id] : listed.items()) {
    ids.emplace(text, vocabulary.count(text));
    bytes += text.size();
  }
  check_vocabulary_bytes(model, bytes);
  return ids;
}

void check_vocabulary_bytes(const JsonFields& model, std::size_t bytes) {
  constexpr std::size_t kMaxBytes = 16U << 20;
  if (bytes > kMaxBytes) {
    model.refuse("vocab", "a vocabulary of at most 16 MiB of text");
  }
}

ByteIds byte_ids_in(const TokenIds& ids) {
  ByteIds bytes;
  for (int byte = 0; byte < 256; ++byte) {
    const auto found = ids.find(fmt::format("<0x{:02X}>", byte));
    if (found != ids.end()) {
      bytes[byte] = found->second;
    }
  }
  return bytes;
}

bool append_byte_ids(const ByteIds& bytes, std::string_view text, std::vector<std::uint32_t>& ids) {
  const auto id_of = [&](char byte) { return bytes[static_cast<unsigned char>(byte)]; };
  const bool whole =
      std::all_of(text.begin(), text.end(), [&](char byte) { return id_of(byte).has_value(); });
  for (const char byte : whole ? text : std::string_view()) {
    ids.push_back(*id_of(byte));
  }
  return whole;
}

std::uint32_t largest_of(const TokenIds& ids) {
  std::uint32_t largest = 0;
  for (const auto& [text, id] : ids) {
    largest = std::max(largest, id);
  }
  return largest;
}

}  // namespace regroup
