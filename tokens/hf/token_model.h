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

#include "formats/vocabulary/vocabulary.h"
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

using ByteIds = std::array<std::optional<std::uint32_t>, 256>;

/// A vocabulary, and how words become its tokens. Thread-safe.
class TokenModel {
 public:
  explicit TokenModel(TokenIds ids);
  TokenModel(const TokenModel&) = delete;
  TokenModel& operator=(const TokenModel&) = delete;
  virtual ~TokenModel() = default;

  /// Appends the ids of a word, which is not empty. Returns how many of its characters were left
  /// out, because the vocabulary has neither a token for them nor one for what is unknown.
  virtual std::size_t encode(std::string_view word, std::vector<std::uint32_t>& ids) const = 0;

  /// The bytes of the first part of `word` whose ids do not depend on the rest.
  virtual std::size_t first_unit(std::string_view word) const { return word.size(); }

  /// The id of the token with that text; of special tokens, too.
  std::optional<std::uint32_t> id_of(std::string_view token) const;

  /// Calls `visit` with each token.
  void for_each_token(const TokenVisitor& visit) const;

  /// The number of tokens, and the largest id. Not the same where ids are left out.
  virtual std::size_t size() const { return ids_.size(); }
  std::uint32_t largest_id() const { return largest_; }

 protected:
  /// The id of "<0x41>" for each byte, as far as the vocabulary has it.
  ByteIds byte_ids() const;

  const TokenIds ids_;

 private:
  std::uint32_t largest_ = 0;
};

/// Reads the object "model". Words do not become one of `special`, the texts of special tokens.
/// Throws kBadInput for kinds and settings that are not supported.
std::unique_ptr<TokenModel> read_token_model(const JsonFields& fields, const TokenTexts& special);

/// The reader of one kind.
std::unique_ptr<TokenModel> read_bpe(const JsonFields& fields, const TokenTexts& special);

/// The object "vocab" of texts and ids. Throws kBadInput if it is empty or too large, or if an id
/// is no id.
TokenIds read_vocabulary_ids(const JsonFields& model);

/// Appends the ids of the bytes of `text`; false, and nothing appended, unless all have one.
bool append_byte_ids(const ByteIds& bytes, std::string_view text, std::vector<std::uint32_t>& ids);

}  // namespace regroup
