// What the readers of tokenizer files share: tokens put in their places, and small JSON files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <nlohmann/json.hpp>

#include "formats/vocabulary/vocabulary.h"

namespace regroup {

/// A tokenizer's files as JSON; sorted by key, because nlohmann's ordered objects take quadratic
/// time for a vocabulary's worth of members.
using SortedJson = nlohmann::json;

/// The object in `directory`/`name`, or null where there is no such file. Throws kBadInput.
SortedJson read_json_if_there(const std::filesystem::path& directory, const std::string& name);

/// The member of an object, or null.
const SortedJson& member_of(const SortedJson& object, const std::string& key);

/// The member as text: itself, or its "content" (the form of added tokens); empty for none.
std::string token_text(const SortedJson& object, const std::string& key);

/// Tokens of a vocabulary with a fixed number of places.
class VocabularyBuilder {
 public:
  /// All places hold placeholders. `scored`: whether tokens have scores.
  VocabularyBuilder(std::int64_t rows, bool scored);

  /// Puts a token in its place; one beyond the rows is counted and left out. Throws kBadInput
  /// naming `where` for an id that is taken already.
  void put(std::int64_t id, std::string text, TokenType type, float score, std::string_view where);

  /// A token that stands beside the tokenizer's own: special ones are controls, others
  /// user-defined, their spaces spelled as spaces. It replaces what stands in its place, unless
  /// that is the same text as something special already.
  void put_added(std::int64_t id, std::string text, bool special, std::string_view where);

  /// The place of a token of that text.
  std::optional<std::uint32_t> find(const std::string& text) const;

  TokenType type(std::uint32_t id) const { return static_cast<TokenType>(vocabulary_.types[id]); }
  void set_type(std::uint32_t id, TokenType type);
  void set_score(std::uint32_t id, float score) { vocabulary_.scores[id] = score; }

  Vocabulary& vocabulary() { return vocabulary_; }
  /// The finished vocabulary, with a note on what was left out.
  Vocabulary finish();

 private:
  void place(std::int64_t id, std::string text, TokenType type, float score);

  Vocabulary vocabulary_;
  std::unordered_map<std::string, std::uint32_t> places_;
  std::vector<bool> taken_;  // whether a place holds more than a placeholder
  std::int64_t rows_;
  std::set<std::int64_t> left_out_;  // ids beyond the rows
};

/// Adds the tokens listed in tokenizer.json's "added_tokens", added_tokens.json and
/// tokenizer_config.json's "added_tokens_decoder".
void put_added_tokens(VocabularyBuilder& builder, const std::filesystem::path& directory,
                      const SortedJson& tokenizer);

/// Fills in special_ids, add_bos, add_eos and chat_template from tokenizer_config.json,
/// special_tokens_map.json, config.json, generation_config.json and tokenizer.json's
/// post-processor.
void read_special_tokens(VocabularyBuilder& builder, const std::filesystem::path& directory,
                         const SortedJson& tokenizer);

/// The readers of vocabulary.cpp: a SentencePiece file, tokenizer.json (nothing where it is of
/// another kind than BPE), vocab.json with merges.txt.
VocabularyBuilder read_sentencepiece(const std::filesystem::path& file, std::int64_t rows);
std::optional<VocabularyBuilder> read_tokenizer_json(const SortedJson& tokenizer,
                                                     const std::string& where, std::int64_t rows);
VocabularyBuilder read_vocab_and_merges(const std::filesystem::path& directory, std::int64_t rows);

/// llama.cpp's name for how tokenizer.json splits text ahead of BPE; empty for one not known here.
std::string pre_tokenizer_name(const SortedJson& pre_tokenizer);

}  // namespace regroup
