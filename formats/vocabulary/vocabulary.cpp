#include "formats/vocabulary/vocabulary.h"

#include <fmt/format.h>

#include "formats/base/error.h"
#include "formats/base/file.h"
#include "formats/base/printable.h"
#include "formats/vocabulary/sentencepiece.h"
#include "formats/vocabulary/tokenizer_files.h"

namespace regroup {

std::optional<std::uint32_t> Vocabulary::special_id(const std::string& role) const {
  const auto found = special_ids.find(role);
  return found == special_ids.end() ? std::nullopt : std::optional(found->second);
}

namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMaxSentencePieceBytes = 256U << 20;

// The scores of placeholder tokens, and of tokens added to a SentencePiece model.
constexpr float kPlaceholderScore = -10000.0F;
constexpr float kAddedScore = -1000.0F;

Vocabulary absent(const std::string& why) {
  Vocabulary vocabulary;
  vocabulary.notes.push_back(why);
  return vocabulary;
}

VocabularyBuilder read_sentencepiece(const fs::path& file, std::int64_t rows) {
  const std::string where = printable_path(file);
  SentencePieceModel model =
      parse_sentencepiece_model(read_text(file, kMaxSentencePieceBytes), where);
  VocabularyBuilder builder(rows, true);
  for (std::size_t id = 0; id < model.pieces.size(); ++id) {
    SentencePiece& piece = model.pieces[id];
    builder.put(static_cast<std::int64_t>(id), std::move(piece.text),
                static_cast<TokenType>(piece.type), piece.score, where);
  }
  Vocabulary& vocabulary = builder.vocabulary();
  vocabulary.model = "llama";
  vocabulary.pre = "default";
  vocabulary.add_space_prefix = model.adds_space_prefix;
  if (model.unigram) {
    vocabulary.notes.emplace_back(
        "tokenizer.model is a unigram model; loaders of \"llama\" vocabularies merge pieces by "
        "score and may split words differently");
  }
  return builder;
}

// Llama 3's files in Meta's form name no tokens with a role.
void find_edges_of_text(VocabularyBuilder& builder) {
  for (const auto& [role, text] :
       {std::pair("bos", "<|begin_of_text|>"), {"eos", "<|end_of_text|>"}}) {
    if (const auto id = builder.find(text)) {
      builder.vocabulary().special_ids.emplace(role, *id);
    }
  }
}

}  // namespace

Vocabulary read_vocabulary(const fs::path& directory, std::int64_t rows) {
  const auto file = tokenizer_file_in(directory, /*reads_json=*/false);
  if (!file) {
    return absent(
        "there is no tokenizer.model, tokenizer.json or vocab.json with merges.txt: the "
        "result has no vocabulary");
  }
  const std::string where = printable(file->string(), 0);
  const bool sentencepiece = file->extension() == ".model" && !is_vocabulary_file(*file);
  SortedJson tokenizer = read_json_if_there(directory, "tokenizer.json");
  try {
    tokenizer = tokenizer.is_null() && !sentencepiece ? tokenizer_json_from(*file) : tokenizer;
  } catch (const Error& fault) {
    if (fault.kind() != ErrorKind::kUsage) {
      throw;
    }
    return absent(fmt::format("{}: the result has no vocabulary", fault.what()));
  }
  auto builder = sentencepiece ? std::optional(read_sentencepiece(*file, rows))
                               : read_tokenizer_json(tokenizer, where, rows);
  if (!builder) {
    return absent(fmt::format("{} has type {}, only BPE is supported: the result has no vocabulary",
                              file->filename().string(),
                              printable(token_text(member_of(tokenizer, "model"), "type"), 60)));
  }
  put_added_tokens(*builder, directory, tokenizer);
  read_special_tokens(*builder, directory, tokenizer);
  find_edges_of_text(*builder);
  Vocabulary vocabulary = builder->finish();
  if (!sentencepiece) {
    note_other_merges(vocabulary, tokenizer, where);
  }
  return vocabulary;
}

std::string with_plain_spaces(std::string text) {
  replace_all(text, kSpaceOfPieces, " ");
  return text;
}

SortedJson read_json_if_there(const std::filesystem::path& directory, const std::string& name,
                              std::uint64_t max_bytes) {
  const std::filesystem::path file = directory / name;
  if (!path_exists(file)) {
    return nullptr;
  }
  return parse_sorted_json_object(read_text(file, max_bytes), printable_path(file));
}

std::optional<bool> flag_in(const SortedJson& object, std::string_view key) {
  const SortedJson& member = member_of(object, key);
  return member.is_boolean() ? std::optional(member.get<bool>()) : std::nullopt;
}

std::optional<std::int64_t> first_number_in(const SortedJson& object, std::string_view key) {
  const SortedJson& member = member_of(object, key);
  const SortedJson& number = member.is_array() && !member.empty() ? member.front() : member;
  return number.is_number_integer() ? std::optional(number.get<std::int64_t>()) : std::nullopt;
}

std::string token_text(const SortedJson& object, std::string_view key) {
  const SortedJson& member = member_of(object, key);
  const SortedJson& text = member.is_object() ? member_of(member, "content") : member;
  return text.is_string() ? text.get<std::string>() : "";
}

VocabularyBuilder::VocabularyBuilder(std::int64_t rows, bool scored) : rows_(rows) {
  const auto count = static_cast<std::size_t>(rows);
  for (std::int64_t i = 0; i < rows; ++i) {
    vocabulary_.tokens.push_back(fmt::format("[PAD{}]", i));
  }
  vocabulary_.types.assign(count, static_cast<std::int32_t>(TokenType::kUnused));
  vocabulary_.scores.assign(scored ? count : 0, kPlaceholderScore);
  taken_.assign(count, false);
}

void VocabularyBuilder::place(std::int64_t id, std::string text, TokenType type, float score) {
  const auto at = static_cast<std::size_t>(id);
  if (taken_[at]) {
    const auto old = places_.find(vocabulary_.tokens[at]);
    if (old != places_.end() && old->second == at) {
      places_.erase(old);
    }
  }
  taken_[at] = true;
  places_.try_emplace(text, static_cast<std::uint32_t>(id));
  vocabulary_.tokens[at] = std::move(text);
  vocabulary_.types[at] = static_cast<std::int32_t>(type);
  if (!vocabulary_.scores.empty()) {
    vocabulary_.scores[at] = score;
  }
}

void VocabularyBuilder::put(std::int64_t id, std::string text, TokenType type, float score,
                            std::string_view where) {
  if (id < 0) {
    throw_bad_input("{}: token {} has the id {}", where, printable(text, 60), id);
  }
  if (id >= rows_) {
    left_out_.insert(id);
    return;
  }
  if (taken_[static_cast<std::size_t>(id)]) {
    throw_bad_input("{}: tokens {} and {} have the same id {}", where,
                    printable(vocabulary_.tokens[static_cast<std::size_t>(id)], 60),
                    printable(text, 60), id);
  }
  place(id, type == TokenType::kUserDefined ? with_plain_spaces(text) : std::move(text), type,
        score);
}

void VocabularyBuilder::put_added(std::int64_t id, std::string text, bool special,
                                  std::string_view where) {
  if (id < 0) {
    throw_bad_input("{}: added token {} has the id {}", where, printable(text, 60), id);
  }
  if (id >= rows_) {
    left_out_.insert(id);
    return;
  }
  const auto at = static_cast<std::size_t>(id);
  const TokenType type = vocabulary_.type(at);
  const bool known = taken_[at] && vocabulary_.tokens[at] == text;
  if (known &&
      (type == TokenType::kUnknown || type == TokenType::kControl || type == TokenType::kByte)) {
    return;
  }
  place(id, special ? std::move(text) : with_plain_spaces(text),
        special ? TokenType::kControl : TokenType::kUserDefined, kAddedScore);
}

std::optional<std::uint32_t> VocabularyBuilder::find(const std::string& text) const {
  const auto found = places_.find(text);
  return found == places_.end() ? std::nullopt : std::optional(found->second);
}

void VocabularyBuilder::set_type(std::uint32_t id, TokenType type) {
  vocabulary_.types[id] = static_cast<std::int32_t>(type);
}

Vocabulary VocabularyBuilder::finish() {
  if (!left_out_.empty()) {
    vocabulary_.notes.push_back(
        fmt::format("{} tokens beyond the {} rows of the token embedding are left out",
                    left_out_.size(), rows_));
  }
  return std::move(vocabulary_);
}

}  // namespace regroup
