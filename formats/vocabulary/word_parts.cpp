// Unigram and WordPiece as parts of a tokenizer.json.
#include <algorithm>
#include <unordered_set>
#include <utility>

#include "formats/base/base64.h"
#include "formats/base/error.h"
#include "formats/base/printable.h"
#include "formats/vocabulary/vocabulary_parts.h"

namespace regroup {
namespace {

using nlohmann::json;

constexpr std::uint32_t kLongestWord = 100;  // BERT's, in characters

json metaspace(std::string_view prepend, bool split) {
  return {{"type", "Metaspace"},
          {"replacement", kSpaceOfPieces},
          {"prepend_scheme", prepend},
          {"split", split}};
}

// Whether no token goes on after a space, so that words can be encoded one by one.
bool splits_at_spaces(const Vocabulary& vocabulary) {
  return std::all_of(vocabulary.tokens.begin(), vocabulary.tokens.end(), [](const auto& token) {
    return token.find(kSpaceOfPieces, 1) == std::string::npos;
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
    steps.push_back(replacement_of({{"Regex", R"( +\z)"}}, ""));
    steps.push_back(replacement_of({{"Regex", " {2,}"}}, " "));
  } else if (vocabulary.add_space_prefix.value_or(false)) {
    steps.push_back({{"type", "Prepend"}, {"prepend", kSpaceOfPieces}});
  }
  return steps;
}

// llama.cpp marks tokens that begin a word, the original those that do not.
std::vector<std::string> word_pieces(const Vocabulary& vocabulary, std::string_view where) {
  std::vector<std::string> tokens = vocabulary.tokens;
  std::unordered_set<std::string> known;
  for (std::size_t id = 0; id < tokens.size(); ++id) {
    std::string& token = tokens[id];
    const TokenType type = static_cast<TokenType>(vocabulary.types[id]);
    const bool bracketed = token.size() > 2 && token.front() == '[' && token.back() == ']';
    if (token.starts_with(kSpaceOfPieces)) {
      token.erase(0, kSpaceOfPieces.size());
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
    if (token.starts_with(kSpaceOfPieces) &&
        static_cast<TokenType>(vocabulary.types[id]) == TokenType::kNormal &&
        std::any_of(token.begin(), token.end(), [](char c) { return c >= 'A' && c <= 'Z'; })) {
      return true;
    }
  }
  return false;
}

}  // namespace

TokenizerParts unigram_parts(const Vocabulary& vocabulary, std::string_view where) {
  json pieces = json::array();
  for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    pieces.push_back({vocabulary.tokens[id], static_cast<double>(vocabulary.scores[id])});
  }
  TokenizerParts parts;
  parts.model = {{"type", "Unigram"},
                 {"unk_id", unknown_id_of(vocabulary, where)},
                 {"vocab", std::move(pieces)},
                 {"byte_fallback", has_byte_tokens(vocabulary, where)}};
  const bool prefix = vocabulary.add_space_prefix.value_or(false);
  parts.normalizer = {{"type", "Sequence"}, {"normalizers", unigram_normalizers(vocabulary)}};
  // Without extra spaces, a space at the beginning is the prefix; else it follows one.
  const bool once = vocabulary.removes_extra_spaces.value_or(false);
  parts.pre_tokenizer =
      metaspace(prefix && once ? "always" : "never", splits_at_spaces(vocabulary));
  parts.decoder = metaspace(prefix ? "always" : "never", true);
  return parts;
}

TokenizerParts word_piece_parts(Vocabulary& vocabulary, std::string_view where) {
  const bool lower = vocabulary.lower_case.value_or(!has_capitals(vocabulary));
  vocabulary.tokens = word_pieces(vocabulary, where);
  TokenizerParts parts;
  parts.model = {{"type", "WordPiece"},
                 {"unk_token", vocabulary.tokens[unknown_id_of(vocabulary, where)]},
                 {"continuing_subword_prefix", "##"},
                 {"max_input_chars_per_word", kLongestWord},
                 {"vocab", token_ids_of(vocabulary.tokens)}};
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

}  // namespace regroup
