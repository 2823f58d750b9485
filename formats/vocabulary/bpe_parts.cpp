// Byte-level BPE and SentencePiece's BPE as parts of a tokenizer.json.
#include <unordered_set>
#include <utility>

#include "formats/base/error.h"
#include "formats/base/printable.h"
#include "formats/vocabulary/merges_by_score.h"
#include "formats/vocabulary/pre_tokenizations.h"
#include "formats/vocabulary/vocabulary_parts.h"

namespace regroup {
namespace {

using nlohmann::json;

constexpr std::size_t kByteTokens = 256;

json bpe_model(const Vocabulary& vocabulary, json merges) {
  return {{"type", "BPE"},
          {"dropout", nullptr},
          {"unk_token", nullptr},
          {"continuing_subword_prefix", nullptr},
          {"end_of_word_suffix", nullptr},
          {"fuse_unk", false},
          {"byte_fallback", false},
          {"ignore_merges", false},
          {"vocab", token_ids_of(vocabulary.tokens)},
          {"merges", std::move(merges)}};
}

}  // namespace

json token_ids_of(const std::vector<std::string>& tokens) {
  json ids = json::object();
  for (std::size_t id = 0; id < tokens.size(); ++id) {
    ids.emplace(tokens[id], id);
  }
  return ids;
}

json replacement_of(json pattern, std::string_view content) {
  return {{"type", "Replace"}, {"pattern", std::move(pattern)}, {"content", content}};
}

std::uint32_t unknown_id_of(const Vocabulary& vocabulary, std::string_view where) {
  const auto id = vocabulary.special_ids.find("unk");
  if (id == vocabulary.special_ids.end()) {
    throw_bad_input("{}: the vocabulary needs an unknown token (tokenizer.ggml.unknown_token_id)",
                    where);
  }
  return id->second;
}

bool has_byte_tokens(const Vocabulary& vocabulary, std::string_view where) {
  std::unordered_set<std::string_view> bytes;
  for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    if (static_cast<TokenType>(vocabulary.types[id]) == TokenType::kByte) {
      bytes.insert(vocabulary.tokens[id]);
    }
  }
  std::size_t found = 0;
  for (std::size_t byte = 0; byte < kByteTokens; ++byte) {
    found += bytes.contains(fmt::format("<0x{:02X}>", byte)) ? 1 : 0;
  }
  if (found != bytes.size() || (found > 0 && found < kByteTokens)) {
    throw_bad_input("{}: the vocabulary has {} byte tokens, {} of the 256 from <0x00> to <0xFF>",
                    where, bytes.size(), found);
  }
  return found == kByteTokens;
}

TokenizerParts byte_level_parts(const Vocabulary& vocabulary, std::string_view where) {
  const PreTokenization* pre = find_pre_tokenization(vocabulary.pre);
  if (pre == nullptr) {
    throw_bad_input(
        "{}: tokenizer.ggml.pre is {}, a way to split text that regroup does not know; it knows "
        "{}. Give the original model's tokenizer.json",
        where, vocabulary.pre.empty() ? "missing" : printable(vocabulary.pre, 60),
        pre_tokenization_names());
  }
  TokenizerParts parts;
  parts.model = bpe_model(vocabulary, vocabulary.merges);
  parts.model["ignore_merges"] = pre->whole_words;
  parts.pre_tokenizer = {{"type", "Sequence"}, {"pretokenizers", pre->steps()}};
  if (pre->composes) {
    parts.normalizer = {{"type", "NFC"}};
  }
  parts.decoder = {{"type", "ByteLevel"},
                   {"add_prefix_space", true},
                   {"trim_offsets", true},
                   {"use_regex", true}};
  return parts;
}

// SentencePiece's BPE. The text is one word, whose spaces are marks.
TokenizerParts scored_parts(const Vocabulary& vocabulary, std::string_view where) {
  json merges = json::array();
  for (const auto& [left, right] : merges_by_score(vocabulary, where)) {
    if (left.find(' ') == std::string_view::npos && right.find(' ') == std::string_view::npos) {
      merges.push_back(std::string(left).append(" ").append(right));
    } else {
      merges.push_back({left, right});
    }
  }
  TokenizerParts parts;
  parts.model = bpe_model(vocabulary, std::move(merges));
  parts.model["unk_token"] = vocabulary.tokens[unknown_id_of(vocabulary, where)];
  parts.model["fuse_unk"] = true;
  parts.model["byte_fallback"] = has_byte_tokens(vocabulary, where);
  const bool prefix = vocabulary.add_space_prefix.value_or(true);
  json steps = json::array();
  if (prefix) {
    steps.push_back({{"type", "Prepend"}, {"prepend", kSpaceOfPieces}});
  }
  steps.push_back(replacement_of({{"String", " "}}, kSpaceOfPieces));
  parts.normalizer = {{"type", "Sequence"}, {"normalizers", std::move(steps)}};
  json decoders = {replacement_of({{"String", kSpaceOfPieces}}, " "),
                   {{"type", "ByteFallback"}},
                   {{"type", "Fuse"}}};
  if (prefix) {
    decoders.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  }
  parts.decoder = {{"type", "Sequence"}, {"decoders", std::move(decoders)}};
  return parts;
}

}  // namespace regroup
