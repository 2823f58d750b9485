// A tokenizer.json as a GGUF vocabulary: byte-pair merges and words.
#include <algorithm>
#include <unordered_set>
#include <utility>

#include "formats/base/error.h"
#include "formats/base/json.h"
#include "formats/base/printable.h"
#include "formats/vocabulary/tokenizer_files.h"
#include "formats/vocabulary/vocabulary.h"

namespace regroup {

// Reads BPE tokenizers: tokenizer.json, byte-level or SentencePiece style.

namespace {

// A space inside a token of a merge would be ambiguous; byte-level BPE spells it differently.
std::string with_encoded_spaces(std::string part) {
  replace_all(part, " ", "\u0120");
  return part;
}

// Returns "left right" for a merge that is spelled so or as ["left", "right"].
std::string merge_text(const SortedJson& merge, const std::string& where) {
  if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
    return with_encoded_spaces(merge[0].get<std::string>()) + " " +
           with_encoded_spaces(merge[1].get<std::string>());
  }
  const std::string text = merge.is_string() ? merge.get<std::string>() : "";
  const std::size_t space = text.find(' ');
  if (space == std::string::npos || space == 0 || space + 1 == text.size()) {
    throw_bad_input("{}: the merge {} is not a pair of tokens", where, printable_json(merge));
  }
  return text;
}

std::vector<std::string> merges_of(const SortedJson& model, const std::string& where) {
  const SortedJson& listed = member_of(model, "merges");
  if (!listed.is_array()) {
    throw_bad_input("{}: model.merges is not a list", where);
  }
  std::vector<std::string> merges;
  for (const SortedJson& merge : listed) {
    merges.push_back(merge_text(merge, where));
  }
  return merges;
}

void put_vocab(VocabularyBuilder& builder, const SortedJson& vocab, const std::string& where) {
  if (!vocab.is_object() || vocab.empty()) {
    throw_bad_input("{}: there is no vocabulary of tokens and their ids", where);
  }
  for (const auto& [text, id] : vocab.items()) {
    if (!id.is_number_integer()) {
      throw_bad_input("{}: token {} has the id {}, a whole number is needed", where,
                      printable(text, 60), printable_json(id));
    }
    builder.put(id.get<std::int64_t>(), text, TokenType::kNormal, 0.0F, where);
  }
}

bool is_byte_token(std::string_view text) {
  return text.size() == 6 && text.starts_with("<0x") && text.ends_with('>');
}

// A SentencePiece model that was converted to BPE in tokenizer.json has lost its scores. Earlier
// merges get higher scores, which restores the order.
void score_by_merges(VocabularyBuilder& builder, const std::vector<std::string>& merges) {
  const auto worst = -static_cast<float>(merges.size());
  const auto tokens = static_cast<std::uint32_t>(builder.vocabulary().tokens.size());
  for (std::uint32_t id = 0; id < tokens; ++id) {
    if (builder.type(id) == TokenType::kNormal) {
      builder.set_score(id, worst);
    }
  }
  for (std::size_t rank = merges.size(); rank-- > 0;) {  // the best score is set last and stays
    const std::size_t space = merges[rank].find(' ');
    std::string whole = merges[rank];
    const auto id = builder.find(whole.erase(space, 1));
    if (id && builder.type(*id) == TokenType::kNormal) {
      builder.set_score(*id, -static_cast<float>(rank));
    }
  }
}

// What each merge makes. Runs of one character are left out: their order is not that of scores.
std::vector<std::string> made_tokens(const std::vector<std::string>& merges) {
  std::vector<std::string> tokens;
  for (std::string merge : merges) {
    merge.erase(merge.find(' '), 1);
    if (!repeats_one_character(merge)) {
      tokens.push_back(std::move(merge));
    }
  }
  return tokens;
}

void mark_bytes_and_unknown(VocabularyBuilder& builder, const std::string& unknown) {
  const std::vector<std::string>& tokens = builder.vocabulary().tokens;
  for (std::uint32_t id = 0; id < tokens.size(); ++id) {
    if (is_byte_token(tokens[id])) {
      builder.set_type(id, TokenType::kByte);
    }
  }
  if (const auto id = builder.find(unknown)) {
    builder.set_type(*id, TokenType::kUnknown);
  }
}

}  // namespace

std::optional<VocabularyBuilder> read_tokenizer_json(const SortedJson& tokenizer,
                                                     const std::string& where, std::int64_t rows) {
  const SortedJson& model = member_of(tokenizer, "model");
  const std::string type = token_text(model, "type");
  if (!model.is_object() || (type != "BPE" && !(type.empty() && model.contains("merges")))) {
    return std::nullopt;
  }
  const bool like_sentencepiece = flag_in(model, "byte_fallback").value_or(false);
  VocabularyBuilder builder(rows, like_sentencepiece);
  put_vocab(builder, member_of(model, "vocab"), where);
  std::vector<std::string> merges = merges_of(model, where);
  Vocabulary& vocabulary = builder.vocabulary();
  if (like_sentencepiece) {
    vocabulary.model = "llama";
    vocabulary.pre = "default";
    mark_bytes_and_unknown(builder, token_text(model, "unk_token"));
    score_by_merges(builder, merges);
    return builder;
  }
  vocabulary.model = "gpt2";
  vocabulary.merges = std::move(merges);
  vocabulary.pre = pre_tokenizer_name(tokenizer);
  if (vocabulary.pre.empty()) {
    vocabulary.pre = "default";
    vocabulary.notes.emplace_back(
        "llama.cpp's name for how this tokenizer splits text is unknown (the key "
        "tokenizer.ggml.pre); \"default\" may split differently");
  }
  return builder;
}

void note_other_merges(Vocabulary& vocabulary, const SortedJson& tokenizer,
                       const std::string& where) {
  if (vocabulary.model != "llama") {
    return;
  }
  std::vector<std::string> stated = merges_of(member_of(tokenizer, "model"), where), made;
  try {
    for (const auto& [left, right] : merges_by_score(vocabulary, where)) {
      made.push_back(std::string(left).append(" ").append(right));
    }
  } catch (const Error&) {
    made.clear();  // no order at all
  }
  const bool same_order = made_tokens(made) == made_tokens(stated);
  std::ranges::sort(made);
  std::ranges::sort(stated);
  if (!same_order || made != stated) {
    vocabulary.notes.emplace_back(
        "llama.cpp merges whatever makes a token, by score; tokenizer.json has other merges, so "
        "llama.cpp may split words differently");
  }
}

// GGUF vocabularies as parts of a tokenizer.json.

namespace {

using nlohmann::json;

constexpr std::size_t kByteTokens = 256;

// An object from token to id.
json token_ids_of(const std::vector<std::string>& tokens) {
  json ids = json::object();
  for (std::size_t id = 0; id < tokens.size(); ++id) {
    ids.emplace(tokens[id], id);
  }
  return ids;
}

// A normalizer or decoder that replaces matches of `pattern`.
json replacement_of(json pattern, std::string_view content) {
  return {{"type", "Replace"}, {"pattern", std::move(pattern)}, {"content", content}};
}

// Throws kBadInput if there is none.
std::uint32_t unknown_id_of(const Vocabulary& vocabulary, std::string_view where) {
  const auto id = vocabulary.special_id("unk");
  if (!id) {
    throw_bad_input("{}: the vocabulary needs an unknown token (tokenizer.ggml.unknown_token_id)",
                    where);
  }
  return *id;
}

// Whether characters without a token become bytes: if there is a token for each byte. Throws
// kBadInput if there are tokens for some of them.
bool has_byte_tokens(const Vocabulary& vocabulary, std::string_view where) {
  std::unordered_set<std::string_view> bytes;
  for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    if (vocabulary.type(id) == TokenType::kByte) {
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

constexpr std::uint32_t kLongestWord = 100;  // BERT's, in characters

json metaspace(std::string_view prepend, bool split) {
  return {{"type", "Metaspace"},
          {"replacement", kSpaceOfPieces},
          {"prepend_scheme", prepend},
          {"split", split}};
}

// Whether no token goes on after a space, so that words can be encoded one by one.
bool splits_at_spaces(const Vocabulary& vocabulary) {
  return std::ranges::all_of(vocabulary.tokens, [](const auto& token) {
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
    const TokenType type = vocabulary.type(id);
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
    if (token.starts_with(kSpaceOfPieces) && vocabulary.type(id) == TokenType::kNormal &&
        std::ranges::any_of(token, [](char c) { return c >= 'A' && c <= 'Z'; })) {
      return true;
    }
  }
  return false;
}

}  // namespace

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
