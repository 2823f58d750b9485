#include "formats/vocabulary/tokenizer_json.h"

#include <algorithm>
#include <cstdint>
#include <unordered_set>
#include <utility>

#include "formats/base/base64.h"
#include "formats/base/error.h"
#include "formats/base/printable.h"
#include "formats/vocabulary/merges_by_score.h"
#include "formats/vocabulary/pre_tokenizations.h"

namespace regroup {
namespace {

using nlohmann::json;

constexpr std::string_view kMark = "\u2581";  // SentencePiece's space
constexpr std::size_t kBytes = 256;
constexpr std::uint32_t kLongestWord = 100;  // BERT's, in characters

// The parts of a tokenizer.json that differ between kinds of vocabularies.
struct Parts {
  json model, normalizer = nullptr, pre_tokenizer = nullptr, decoder = nullptr;
};

TokenType type_of(const Vocabulary& vocabulary, std::size_t id) {
  return static_cast<TokenType>(vocabulary.types[id]);
}

std::string text_of_role(const Vocabulary& vocabulary, const std::string& role) {
  const auto id = vocabulary.special_ids.find(role);
  return id == vocabulary.special_ids.end() ? "" : vocabulary.tokens[id->second];
}

std::uint32_t unknown_id(const Vocabulary& vocabulary, std::string_view where) {
  const auto id = vocabulary.special_ids.find("unk");
  if (id == vocabulary.special_ids.end()) {
    throw_bad_input("{}: the vocabulary needs an unknown token (tokenizer.ggml.unknown_token_id)",
                    where);
  }
  return id->second;
}

json added_tokens_of(const Vocabulary& vocabulary) {
  json added = json::array();
  for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    const TokenType type = type_of(vocabulary, id);
    const bool special = type == TokenType::kControl || type == TokenType::kUnknown;
    if (special || type == TokenType::kUserDefined) {
      added.push_back({{"id", id},
                       {"content", vocabulary.tokens[id]},
                       {"special", special},
                       {"normalized", false},
                       {"single_word", false},
                       {"lstrip", false},
                       {"rstrip", false}});
    }
  }
  return added;
}

json ids_of(const std::vector<std::string>& tokens) {
  json ids = json::object();
  for (std::size_t id = 0; id < tokens.size(); ++id) {
    ids.emplace(tokens[id], id);
  }
  return ids;
}

json replacement(json pattern, std::string_view content) {
  return {{"type", "Replace"}, {"pattern", std::move(pattern)}, {"content", content}};
}

json metaspace(std::string_view prepend, bool split) {
  return {{"type", "Metaspace"},
          {"replacement", kMark},
          {"prepend_scheme", prepend},
          {"split", split}};
}

// Whether characters without a token become bytes: if there is a token for each of them.
bool has_byte_tokens(const Vocabulary& vocabulary, std::string_view where) {
  std::unordered_set<std::string_view> bytes;
  for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    if (type_of(vocabulary, id) == TokenType::kByte) {
      bytes.insert(vocabulary.tokens[id]);
    }
  }
  std::size_t found = 0;
  for (std::size_t byte = 0; byte < kBytes; ++byte) {
    found += bytes.contains(fmt::format("<0x{:02X}>", byte)) ? 1 : 0;
  }
  if (found != bytes.size() || (found > 0 && found < kBytes)) {
    throw_bad_input("{}: the vocabulary has {} byte tokens, {} of the 256 from <0x00> to <0xFF>",
                    where, bytes.size(), found);
  }
  return found == kBytes;
}

json bpe_model(const Vocabulary& vocabulary, json merges) {
  return {{"type", "BPE"},
          {"dropout", nullptr},
          {"unk_token", nullptr},
          {"continuing_subword_prefix", nullptr},
          {"end_of_word_suffix", nullptr},
          {"fuse_unk", false},
          {"byte_fallback", false},
          {"ignore_merges", false},
          {"vocab", ids_of(vocabulary.tokens)},
          {"merges", std::move(merges)}};
}

Parts byte_level_parts(const Vocabulary& vocabulary, std::string_view where) {
  const PreTokenization* pre = find_pre_tokenization(vocabulary.pre);
  if (pre == nullptr) {
    throw_bad_input(
        "{}: tokenizer.ggml.pre is {}, a way to split text that regroup does not know; it knows "
        "{}. Give the original model's tokenizer.json",
        where, vocabulary.pre.empty() ? "missing" : printable(vocabulary.pre, 60),
        pre_tokenization_names());
  }
  Parts parts;
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
Parts scored_parts(const Vocabulary& vocabulary, std::string_view where) {
  json merges = json::array();
  for (const auto& [left, right] : merges_by_score(vocabulary, where)) {
    if (left.find(' ') == std::string_view::npos && right.find(' ') == std::string_view::npos) {
      merges.push_back(std::string(left).append(" ").append(right));
    } else {
      merges.push_back({left, right});
    }
  }
  Parts parts;
  parts.model = bpe_model(vocabulary, std::move(merges));
  parts.model["unk_token"] = vocabulary.tokens[unknown_id(vocabulary, where)];
  parts.model["fuse_unk"] = true;
  parts.model["byte_fallback"] = has_byte_tokens(vocabulary, where);
  const bool prefix = vocabulary.add_space_prefix.value_or(true);
  json steps = json::array();
  if (prefix) {
    steps.push_back({{"type", "Prepend"}, {"prepend", kMark}});
  }
  steps.push_back(replacement({{"String", " "}}, kMark));
  parts.normalizer = {{"type", "Sequence"}, {"normalizers", std::move(steps)}};
  json decoders = {replacement({{"String", kMark}}, " "), {{"type", "ByteFallback"}},
                   {{"type", "Fuse"}}};
  if (prefix) {
    decoders.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  }
  parts.decoder = {{"type", "Sequence"}, {"decoders", std::move(decoders)}};
  return parts;
}

// Whether no token goes on after a space, so that words can be encoded one by one.
bool splits_at_spaces(const Vocabulary& vocabulary) {
  return std::all_of(vocabulary.tokens.begin(), vocabulary.tokens.end(), [](const auto& token) {
    return token.find(kMark, 1) == std::string::npos;
  });
}

// SentencePiece's rules, and its spaces: collapsed and left out at the end, or kept as they are.
json unigram_normalizers(const Vocabulary& vocabulary) {
  json steps = json::array();
  if (!vocabulary.charsmap.empty()) {
    steps.push_back(
        {{"type", "Precompiled"}, {"precompiled_charsmap", base64_of(vocabulary.charsmap)}});
  }
  if (vocabulary.removes_extra_spaces.value_or(false)) {
    steps.push_back(replacement({{"Regex", R"( +\z)"}}, ""));
    steps.push_back(replacement({{"Regex", " {2,}"}}, " "));
  } else if (vocabulary.add_space_prefix.value_or(false)) {
    steps.push_back({{"type", "Prepend"}, {"prepend", kMark}});
  }
  return steps;
}

Parts unigram_parts(const Vocabulary& vocabulary, std::string_view where) {
  json pieces = json::array();
  for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    pieces.push_back({vocabulary.tokens[id], static_cast<double>(vocabulary.scores[id])});
  }
  Parts parts;
  parts.model = {{"type", "Unigram"},
                 {"unk_id", unknown_id(vocabulary, where)},
                 {"vocab", std::move(pieces)},
                 {"byte_fallback", has_byte_tokens(vocabulary, where)}};
  const bool prefix = vocabulary.add_space_prefix.value_or(false);
  parts.normalizer = {{"type", "Sequence"}, {"normalizers", unigram_normalizers(vocabulary)}};
  // Without extra spaces, a space at the beginning is the prefix; else it follows one.
  const bool once = vocabulary.removes_extra_spaces.value_or(false);
  parts.pre_tokenizer = metaspace(prefix && once ? "always" : "never", splits_at_spaces(vocabulary));
  parts.decoder = metaspace(prefix ? "always" : "never", true);
  return parts;
}

// llama.cpp marks tokens that begin a word, the original those that do not.
std::vector<std::string> word_pieces(const Vocabulary& vocabulary, std::string_view where) {
  std::vector<std::string> tokens = vocabulary.tokens;
  std::unordered_set<std::string> known;
  for (std::size_t id = 0; id < tokens.size(); ++id) {
    std::string& token = tokens[id];
    const TokenType type = type_of(vocabulary, id);
    const bool bracketed = token.size() > 2 && token.front() == '[' && token.back() == ']';
    if (token.starts_with(kMark)) {
      token.erase(0, kMark.size());
    } else if (type == TokenType::kNormal && !bracketed) {
      token.insert(0, "##");
    }
    if (!known.insert(token).second) {
      throw_bad_input("{}: two tokens of the vocabulary stand for {}", where, printable(token, 60));
    }
  }
  return tokens;
}

// With lower-cased text, no token with a capital letter would ever be found.
bool has_capitals(const Vocabulary& vocabulary) {
  for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    const std::string& token = vocabulary.tokens[id];
    if (token.starts_with(kMark) && type_of(vocabulary, id) == TokenType::kNormal &&
        std::any_of(token.begin(), token.end(), [](char c) { return c >= 'A' && c <= 'Z'; })) {
      return true;
    }
  }
  return false;
}

Parts word_piece_parts(Vocabulary& vocabulary, std::string_view where) {
  const bool lower = vocabulary.lower_case.value_or(!has_capitals(vocabulary));
  vocabulary.tokens = word_pieces(vocabulary, where);
  Parts parts;
  parts.model = {{"type", "WordPiece"},
                 {"unk_token", vocabulary.tokens[unknown_id(vocabulary, where)]},
                 {"continuing_subword_prefix", "##"},
                 {"max_input_chars_per_word", kLongestWord},
                 {"vocab", ids_of(vocabulary.tokens)}};
  parts.normalizer = {{"type", "BertNormalizer"},
                      {"clean_text", true},
                      {"handle_chinese_chars", true},
                      {"strip_accents", nullptr},
                      {"lowercase", lower}};
  if (vocabulary.strip_accents) {
    parts.normalizer["strip_accents"] = *vocabulary.strip_accents;
  }
  parts.pre_tokenizer = {{"type", "BertPreTokenizer"}};
  parts.decoder = {{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", true}};
  return parts;
}

Parts parts_of(Vocabulary& vocabulary, std::string_view where) {
  if (vocabulary.model == "gpt2") {
    return byte_level_parts(vocabulary, where);
  }
  if (vocabulary.model == "llama") {
    return scored_parts(vocabulary, where);
  }
  return vocabulary.model == "t5" ? unigram_parts(vocabulary, where)
                                  : word_piece_parts(vocabulary, where);
}

json post_processor_of(const Vocabulary& vocabulary) {
  const EdgeTokens edges = edge_tokens_of(vocabulary);
  if (edges.first.empty() && edges.last.empty()) {
    return nullptr;
  }
  json single = json::array(), pair = json::array(), special = json::object();
  const auto put = [&](json& list, const std::string& token, int sequence) {
    if (!token.empty()) {
      list.push_back({{"SpecialToken", {{"id", token}, {"type_id", sequence}}}});
      const auto found = std::find(vocabulary.tokens.begin(), vocabulary.tokens.end(), token);
      const auto id = static_cast<std::uint64_t>(found - vocabulary.tokens.begin());
      special[token] = {{"id", token},
                        {"ids", json::array({id})},
                        {"tokens", json::array({token})}};
    }
  };
  const auto put_text = [](json& list, const char* name, int sequence) {
    list.push_back({{"Sequence", {{"id", name}, {"type_id", sequence}}}});
  };
  put(single, edges.first, 0);
  put_text(single, "A", 0);
  put(single, edges.last, 0);
  pair = single;
  const bool bert = vocabulary.model == "bert";
  put(pair, bert ? "" : edges.first, 1);
  put_text(pair, "B", 1);
  put(pair, edges.last, 1);
  return {{"type", "TemplateProcessing"},
          {"single", std::move(single)},
          {"pair", std::move(pair)},
          {"special_tokens", std::move(special)}};
}

}  // namespace

EdgeTokens edge_tokens_of(const Vocabulary& vocabulary) {
  EdgeTokens edges;
  const bool bert = vocabulary.model == "bert";
  if (vocabulary.add_bos.value_or(false)) {
    edges.first = text_of_role(vocabulary, bert && vocabulary.special_ids.contains("cls") ? "cls" : "bos");
  }
  if (vocabulary.add_eos.value_or(bert || vocabulary.model == "t5")) {
    edges.last = text_of_role(vocabulary, bert ? "sep" : "eos");
  }
  return edges;
}

json tokenizer_json_of(const Vocabulary& stored, std::string_view where) {
  Vocabulary vocabulary = stored;
  Parts parts = parts_of(vocabulary, where);
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", added_tokens_of(vocabulary)},
          {"normalizer", std::move(parts.normalizer)},
          {"pre_tokenizer", std::move(parts.pre_tokenizer)},
          {"post_processor", post_processor_of(vocabulary)},
          {"decoder", std::move(parts.decoder)},
          {"model", std::move(parts.model)}};
}

}  // namespace regroup
