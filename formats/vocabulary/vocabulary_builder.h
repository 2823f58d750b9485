// Shared by the readers of tokenizer files: a vocabulary under construction, and small JSON files.
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

/// JSON of tokenizer files, sorted by key: nlohmann's ordered objects take quadratic time for an
/// object as large as a vocabulary.
using SortedJson = nlohmann::json;

/// The object in `directory`/`name`, or null if there is no such file. Throws kBadInput.
SortedJson read_json_if_there(const std::filesystem::path& directory, const std::string& name);

/// The member of an object, or null.
const SortedJson& member_of(const SortedJson& object, const std::string& key);

/// The member as text: the string itself, or its "content" (the form of added tokens). Empty if
/// absent.
std::string token_text(const SortedJson& object, const std::string& key);

/// Builds a vocabulary with a fixed number of ids.
class VocabularyBuilder {
 public:
  /// Every id starts as a placeholder. `scored`: whether tokens have scores.
  VocabularyBuilder(std::int64_t rows, bool scored);

  /// Sets the token with that id. Ids beyond the rows are counted and dropped. Throws kBadInput
  /// naming `where` for a duplicate id.
  void put(std::int64_t id, std::string text, TokenType type, float score, std::string_view where);

  /// Adds one of the added tokens. Special ones become control tokens, others user-defined with
  /// literal spaces. Replaces the token with that id, unless it has the same text and is special
  /// already.
  void put_added(std::int64_t id, std::string text, bool special, std::string_view where);

  /// The id of the token with that text.
  std::optional<std::uint32_t> find(const std::string& text) const;

  TokenType type(std::uint32_t id) const { return static_cast<TokenType>(vocabulary_.types[id]); }
  void set_type(std::uint32_t id, TokenType type);
  void set_score(std::uint32_t id, float score) { vocabulary_.scores[id] = score; }

  Vocabulary& vocabulary() { return vocabulary_; }
  /// The finished vocabulary, with a note on dropped tokens.
  Vocabulary finish();

 private:
  void place(std::int64_t id, std::string text, TokenType type, float score);

  Vocabulary vocabulary_;
  std::unordered_map<std::string, std::uint32_t> places_;
  std::vector<bool> taken_;  // whether an id is more than a placeholder
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

/// The readers used by vocabulary.cpp: a SentencePiece file, tokenizer.json (nothing unless it is
/// BPE), vocab.json with merges.txt.
VocabularyBuilder read_sentencepiece(const std::filesystem::path& file, std::int64_t rows);
std::optional<VocabularyBuilder> read_tokenizer_json(const SortedJson& tokenizer,
                                                     const std::string& where, std::int64_t rows);
/// Adds a note to the vocabulary of a tokenizer.json whose merges are not those that llama.cpp
/// makes of its scores.
void note_other_merges(Vocabulary& vocabulary, const SortedJson& tokenizer,
                       const std::string& where);
VocabularyBuilder read_vocab_and_merges(const std::filesystem::path& directory, std::int64_t rows);

/// llama.cpp's name for how a tokenizer.json splits text before BPE; empty if unknown.
std::string pre_tokenizer_name(const SortedJson& tokenizer);

}  // namespace regroup
