// Reads BPE tokenizers: tokenizer.json (byte-level or SentencePiece style) and GPT-2's files.
#include <algorithm>

#include "formats/base/error.h"
#include "formats/base/file.h"
#include "formats/base/printable.h"
#include "formats/json/printable_json.h"
#include "formats/vocabulary/merges_by_score.h"
#include "formats/vocabulary/vocabulary_builder.h"

namespace regroup {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMaxMergesBytes = 256U << 20;

// A space inside a token of a merge would be ambiguous; byte-level BPE spells it differently.
std::string with_encoded_spaces(const std::string& part) {
  std::string encoded;
  for (const char byte : part) {
    byte == ' ' ? encoded += "\u0120" : encoded += byte;
  }
  return encoded;
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
  const SortedJson& fallback = member_of(model, "byte_fallback");
  const bool like_sentencepiece = fallback.is_boolean() && fallback.get<bool>();
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
  std::sort(made.begin(), made.end());
  std::sort(stated.begin(), stated.end());
  if (!same_order || made != stated) {
    vocabulary.notes.emplace_back(
        "llama.cpp merges whatever makes a token, by score; tokenizer.json has other merges, so "
        "llama.cpp may split words differently");
  }
}

VocabularyBuilder read_vocab_and_merges(const fs::path& directory, std::int64_t rows) {
  const std::string vocab_name = printable((directory / "vocab.json").string(), 0);
  const std::string merges_name = printable((directory / "merges.txt").string(), 0);
  VocabularyBuilder builder(rows, false);
  put_vocab(builder, read_json_if_there(directory, "vocab.json"), vocab_name);
  Vocabulary& vocabulary = builder.vocabulary();
  vocabulary.model = "gpt2";
  vocabulary.pre = "gpt-2";
  const std::string text = read_text(directory / "merges.txt", kMaxMergesBytes);
  std::string_view rest = text;
  for (bool first = true; !rest.empty(); first = false) {
    std::string line(rest.substr(0, rest.find('\n')));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    line.erase(line.find_last_not_of(" \r\n") + 1);
    if (line.empty() || (first && line.starts_with("#version"))) {
      continue;
    }
    const std::size_t space = line.find(' ');
    if (space == std::string::npos || space == 0 ||
        line.find(' ', space + 1) != std::string::npos) {
      throw_bad_input("{}: the line {} is not a pair of tokens", merges_name, printable(line, 60));
    }
    vocabulary.merges.push_back(std::move(line));
  }
  return builder;
}

}  // namespace regroup
