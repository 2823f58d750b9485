// The models of tokenizer.json: from a word to token ids.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "tokens/hf/json_fields.h"

namespace regroup {

struct TextHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const {
    return std::hash<std::string_view>()(text);
  }
};

/// Token ids by text.
using TokenIds = std::unordered_map<std::string, std::uint32_t, TextHash, std::equal_to<>>;
using TokenTexts = std::unordered_set<std::string, TextHash, std::equal_to<>>;

using TokenVisitor = std::function<void(std::int64_t id, std::string_view text)>;

/// Thread-safe.
class TokenModel {
 public:
  TokenModel() = default;
  TokenModel(const TokenModel&) = delete;
  TokenModel& operator=(const TokenModel&) = delete;
  virtual ~TokenModel() = default;

  /// Appends the ids of a word, which is not empty. Returns how many of its characters were left
  /// out, because the vocabulary has neither a token for them nor one for what is unknown.
  virtual std::size_t encode(std::string_view word, std::vector<std::uint32_t>& ids) const = 0;

  /// The bytes of the first part of `word` whose ids do not depend on the rest.
  virtual std::size_t first_unit(std::string_view word) const { return word.size(); }

  /// The id of the token with that text; of special tokens, too.
  virtual std::optional<std::uint32_t> id_of(std::string_view token) const = 0;

  /// Calls `visit` with each token.
  virtual void for_each_token(const TokenVisitor& visit) const = 0;

  /// The number of tokens, and the largest id. Not the same where ids are left out.
  virtual std::size_t size() const = 0;
  virtual std::uint32_t largest_id() const = 0;
};

/// Reads the object "model". Words do not become one of `special`, the texts of special tokens.
/// Throws kBadInput for kinds and settings that are not supported.
std::unique_ptr<TokenModel> read_token_model(const JsonFields& fields, const TokenTexts& special);

/// The readers of the kinds.
std::unique_ptr<TokenModel> read_bpe(const JsonFields& fields, const TokenTexts& special);
std::unique_ptr<TokenModel> read_unigram(const JsonFields& fields, const TokenTexts& special);
std::unique_ptr<TokenModel> read_word_piece(const JsonFields& fields, const TokenTexts& special);
std::unique_ptr<TokenModel> read_word_level(const JsonFields& fields, const TokenTexts& special);

/// The object "vocab" of texts and ids. Throws kBadInput if it is empty or too large, or if an id
/// is no id.
TokenIds read_vocabulary_ids(const JsonFields& model);

/// Throws kBadInput if the texts of a vocabulary have more than 16 MiB: a trie needs up to 64 bytes
/// of memory for each of theirs. Published vocabularies have up to 10 MB.
void check_vocabulary_bytes(const JsonFields& model, std::size_t bytes);

/// The id of "<0x41>" for each byte, as far as the vocabulary has it.
using ByteIds = std::array<std::optional<std::uint32_t>, 256>;
ByteIds byte_ids_in(const TokenIds& ids);

/// Appends the ids of the bytes of `text`; false, and nothing appended, unless all have one.
bool append_byte_ids(const ByteIds& bytes, std::string_view text, std::vector<std::uint32_t>& ids);

/// The largest id.
std::uint32_t largest_of(const TokenIds& ids);

/// A model whose tokens are those of read_vocabulary_ids().
class VocabularyModel : public TokenModel {
 public:
  explicit VocabularyModel(const JsonFields& fields)
      : ids_(read_vocabulary_ids(fields)), largest_(largest_of(ids_)) {}

  std::optional<std::uint32_t> id_of(std::string_view token) const override {
    const auto found = ids_.find(token);
    return found == ids_.end() ? std::nullopt : std::optional(found->second);
  }
  void for_each_token(const TokenVisitor& visit) const override {
    for (const auto& [text, id] : ids_) {
      visit(id, text);
    }
  }
  std::size_t size() const override { return ids_.size(); }
  std::uint32_t largest_id() const override { return largest_; }

 protected:
  const TokenIds ids_;

 private:
  std::uint32_t largest_;
};

}  // namespace regroup
