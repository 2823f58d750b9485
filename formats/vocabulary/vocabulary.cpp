#include "formats/vocabulary/vocabulary.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <unordered_set>
#include <utility>

#include <fmt/format.h>

#include "formats/base/error.h"
#include "formats/base/file.h"
#include "formats/base/json.h"
#include "formats/base/printable.h"
#include "formats/vocabulary/gguf_vocabulary.h"
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

// Reads and validates the vocabulary in a GGUF file's metadata.

namespace {

constexpr std::size_t kMaxStoredTokens = 4U << 20;
constexpr std::size_t kMaxStoredTokenBytes = 4096;
constexpr std::size_t kMaxStoredBytes = 16U << 20;  // of all tokens

// What llama.cpp assumes for a kind of vocabulary. Ids are -1 where it assumes none.
struct KindOfVocabulary {
  std::string_view model;
  std::int64_t bos, eos, unk, sep, pad, mask;
  bool scored, merged, adds_bos, adds_space;
};
constexpr std::array<KindOfVocabulary, 4> kKinds{{
    {"llama", 1, 2, 0, -1, -1, -1, true, false, true, true},
    {"gpt2", -1, -1, -1, -1, -1, -1, false, true, false, false},
    {"t5", -1, 1, 2, -1, 0, -1, true, false, false, false},
    {"bert", 101, -1, 100, 102, 0, 103, false, false, true, false},
}};

const KindOfVocabulary& kind_of(const GgufMetadata& metadata) {
  const auto model = metadata.text("tokenizer.ggml.model");
  const auto* const found = std::ranges::find(kKinds, model, &KindOfVocabulary::model);
  if (found == kKinds.end()) {
    throw_bad_input(
        "{}: tokenizer.ggml.model is {}; regroup reads llama (SentencePiece's BPE), gpt2 "
        "(byte-level BPE), t5 (Unigram) and bert (WordPiece). Give the original model's "
        "tokenizer.json or tokenizer.model",
        metadata.where(), model ? printable(*model, 60) : "missing");
  }
  return *found;
}

std::vector<std::string> texts_in(const GgufMetadata& metadata, std::string_view key) {
  const auto array = metadata.array(key);
  const auto strings = array ? array->strings() : std::nullopt;
  if (!strings) {
    throw_bad_input("{}: {} is no list of strings", metadata.where(), key);
  }
  return {strings->begin(), strings->end()};
}

void check_texts(const std::vector<std::string>& texts, std::string_view key,
                 const GgufMetadata& metadata) {
  if (texts.size() > kMaxStoredTokens) {
    throw_bad_input("{}: {} has {} strings, at most {} are allowed", metadata.where(), key,
                    texts.size(), kMaxStoredTokens);
  }
  for (std::size_t i = 0; i < texts.size(); ++i) {
    if (texts[i].size() > 2 * kMaxStoredTokenBytes || !is_utf8(texts[i])) {
      throw_bad_input("{}: {}[{}] {}", metadata.where(), key, i,
                      is_utf8(texts[i]) ? fmt::format("has {} bytes", texts[i].size())
                                        : std::string("is not UTF-8"));
    }
  }
}

void read_tokens(Vocabulary& vocabulary, const GgufMetadata& metadata) {
  constexpr std::string_view kKey = "tokenizer.ggml.tokens";
  vocabulary.tokens = texts_in(metadata, kKey);
  check_texts(vocabulary.tokens, kKey, metadata);
  std::size_t bytes = 0;
  std::unordered_set<std::string_view> known;
  for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    const std::string& text = vocabulary.tokens[id];
    if (text.size() > kMaxStoredTokenBytes) {
      throw_bad_input("{}: {}[{}] has {} bytes, at most {} are allowed", metadata.where(), kKey, id,
                      text.size(), kMaxStoredTokenBytes);
    }
    bytes += text.size();
    if (!known.insert(text).second) {
      throw_bad_input("{}: {} lists {} twice", metadata.where(), kKey, printable(text, 60));
    }
  }
  if (bytes > kMaxStoredBytes) {
    throw_bad_input("{}: {} has {} bytes of text, at most {} are allowed", metadata.where(), kKey,
                    bytes, kMaxStoredBytes);
  }
  if (vocabulary.tokens.empty()) {
    throw_bad_input("{}: {} is empty", metadata.where(), kKey);
  }
}

void read_types(Vocabulary& vocabulary, const GgufMetadata& metadata) {
  const auto array = metadata.array("tokenizer.ggml.token_type");
  const auto types = array ? array->integers() : std::nullopt;
  if (!types || types->size() != vocabulary.tokens.size()) {
    throw_bad_input("{}: tokenizer.ggml.token_type does not list a type for each of {} tokens",
                    metadata.where(), vocabulary.tokens.size());
  }
  for (std::size_t id = 0; id < types->size(); ++id) {
    const std::int64_t type = types->at(id);
    if (type < 1 || type > 6) {
      throw_bad_input("{}: tokenizer.ggml.token_type[{}] is {}, types are 1 to 6", metadata.where(),
                      id, type);
    }
    vocabulary.types.push_back(static_cast<std::int32_t>(type));
  }
}

void read_scores(Vocabulary& vocabulary, const GgufMetadata& metadata) {
  const auto array = metadata.array("tokenizer.ggml.scores");
  const auto scores = array ? array->numbers() : std::nullopt;
  if (!scores || scores->size() != vocabulary.tokens.size()) {
    throw_bad_input("{}: tokenizer.ggml.scores does not list a score for each of {} tokens",
                    metadata.where(), vocabulary.tokens.size());
  }
  for (std::size_t id = 0; id < scores->size(); ++id) {
    const auto score = static_cast<float>(scores->at(id));
    if (!std::isfinite(score)) {
      throw_bad_input("{}: tokenizer.ggml.scores[{}] is {}, a finite number is needed",
                      metadata.where(), id, score);
    }
    vocabulary.scores.push_back(score);
  }
}

void read_special_ids(Vocabulary& vocabulary, const KindOfVocabulary& kind,
                      const GgufMetadata& metadata) {
  const auto count = static_cast<std::int64_t>(vocabulary.tokens.size());
  const auto put = [&](const std::string& role, std::int64_t id) {
    if (id >= 0 && id < count) {
      vocabulary.special_ids.emplace(role, static_cast<std::uint32_t>(id));
    }
  };
  for (const auto& [role, id] : special_ids_in(metadata)) {
    if (id >= count) {
      throw_bad_input("{}: the {} token has the id {}, there are {} tokens", metadata.where(), role,
                      id, count);
    }
    put(role, id);
  }
  put("bos", kind.bos);
  put("eos", kind.eos);
  put("unk", kind.unk);
  put("sep", kind.sep);
  put("pad", kind.pad);
  put("mask", kind.mask);
}

void read_charsmap(Vocabulary& vocabulary, const GgufMetadata& metadata) {
  constexpr std::string_view kKey = "tokenizer.ggml.precompiled_charsmap";
  const auto array = metadata.array(kKey);
  if (!array) {
    return;
  }
  const auto bytes = array->integers();
  if (!bytes || (array->type() != GgufType::kU8 && array->type() != GgufType::kI8)) {
    throw_bad_input("{}: {} is no list of bytes", metadata.where(), kKey);
  }
  for (const std::int64_t byte : *bytes) {
    vocabulary.charsmap += static_cast<char>(byte);
  }
}

}  // namespace

Vocabulary vocabulary_in(const GgufMetadata& metadata) {
  const KindOfVocabulary& kind = kind_of(metadata);
  Vocabulary vocabulary;
  vocabulary.model = kind.model;
  vocabulary.pre = metadata.text("tokenizer.ggml.pre").value_or("");
  read_tokens(vocabulary, metadata);
  read_types(vocabulary, metadata);
  if (kind.scored) {
    read_scores(vocabulary, metadata);
  }
  if (kind.merged) {
    vocabulary.merges = texts_in(metadata, "tokenizer.ggml.merges");
    check_texts(vocabulary.merges, "tokenizer.ggml.merges", metadata);
  }
  read_special_ids(vocabulary, kind, metadata);
  const PreTokenization* pre = find_pre_tokenization(vocabulary.pre);
  const bool adds_bos = kind.merged ? pre != nullptr && pre->adds_bos : kind.adds_bos;
  vocabulary.add_bos = metadata.flag("tokenizer.ggml.add_bos_token").value_or(adds_bos);
  vocabulary.add_eos = metadata.flag("tokenizer.ggml.add_eos_token");
  vocabulary.add_space_prefix =
      metadata.flag("tokenizer.ggml.add_space_prefix").value_or(kind.adds_space);
  vocabulary.chat_template = metadata.text("tokenizer.chat_template").value_or("");
  vocabulary.removes_extra_spaces = metadata.flag("tokenizer.ggml.remove_extra_whitespaces");
  vocabulary.lower_case = metadata.flag("tokenizer.ggml.normalizer.lowercase");
  vocabulary.strip_accents = metadata.flag("tokenizer.ggml.normalizer.strip_accents");
  read_charsmap(vocabulary, metadata);
  return vocabulary;
}

}  // namespace regroup
