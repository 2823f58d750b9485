// WordPiece: a word is cut into the longest pieces of the vocabulary, from left to right.
// WordLevel: each word is a token.
#include <utility>

#include "tokens/hf/byte_trie.h"
#include "tokens/hf/token_model.h"
#include "tokens/hf/unicode.h"
#include "tokens/hf/work.h"

namespace regroup {
namespace {

// A vocabulary whose special tokens are not found in text.
class WordModel : public TokenModel {
 public:
  WordModel(const JsonFields& fields, const TokenTexts& special)
      : ids_(read_vocabulary_ids(fields)), special_(special), largest_(largest_of(ids_)) {
    const auto unknown = ids_.find(fields.text("unk_token"));
    if (unknown == ids_.end()) {
      fields.refuse("unk_token", "a token of the vocabulary");
    }
    unknown_ = unknown->second;
  }

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
  std::optional<std::uint32_t> id_of_text(std::string_view text) const {
    return special_.contains(text) ? std::nullopt : id_of(text);
  }
  // Calls `found`(text, id) for each token that is neither special nor empty.
  template <typename Found>
  void for_each_ordinary(Found&& found) const {
    for (const auto& [text, id] : ids_) {
      if (!text.empty() && !special_.contains(text)) {
        found(text, id);
      }
    }
  }
  std::uint32_t unknown() const { return unknown_; }

 private:
  TokenIds ids_;
  TokenTexts special_;
  std::uint32_t largest_ = 0;
  std::uint32_t unknown_ = 0;
};

class WordPieceModel : public WordModel {
 public:
  static constexpr std::uint32_t kLongestWord = 1000;  // the work grows with its square

  WordPieceModel(const JsonFields& fields, const TokenTexts& special)
      : WordModel(fields, special), longest_(fields.count("max_input_chars_per_word")) {
    const std::string prefix = fields.text("continuing_subword_prefix");
    std::vector<ByteTrie::Key> first, others;
    for_each_ordinary([&](std::string_view text, std::uint32_t id) {
      first.emplace_back(text, id);
      if (text.size() > prefix.size() && text.starts_with(prefix)) {
        others.emplace_back(text.substr(prefix.size()), id);
      }
    });
    first_ = ByteTrie(std::move(first));
    others_ = ByteTrie(std::move(others));
    if (longest_ > kLongestWord) {
      fields.refuse("max_input_chars_per_word", "a number up to 1,000");
    }
  }

  std::size_t encode(std::string_view word, std::vector<std::uint32_t>& ids) const override {
    const std::size_t count = ids.size();
    if (is_too_long(word) || !append_pieces(word, ids)) {
      ids.resize(count);
      ids.push_back(unknown());
    }
    return 0;
  }

 private:
  bool is_too_long(std::string_view word) const {
    std::size_t characters = 0;
    for (std::size_t at = 0; at < word.size() && characters <= longest_; ++characters) {
      next_character(word, at);
    }
    return characters > longest_;
  }

  bool append_pieces(std::string_view word, std::vector<std::uint32_t>& ids) const {
    for (std::size_t begin = 0; begin < word.size();) {
      std::size_t longest = 0;
      std::uint32_t found = 0;
      const ByteTrie& pieces = begin == 0 ? first_ : others_;
      const std::size_t looked =
          pieces.for_each_prefix(word.substr(begin), [&](std::size_t length, std::uint32_t id) {
            longest = length;
            found = id;
          });
      Work::of_thread().step(looked, "WordPiece");
      if (longest == 0) {
        return false;
      }
      ids.push_back(found);
      begin += longest;
    }
    return true;
  }

  std::uint32_t longest_ = 0;
  ByteTrie first_, others_;  // the pieces that begin a word, and those that continue it
};

class WordLevelModel : public WordModel {
 public:
  using WordModel::WordModel;
  std::size_t encode(std::string_view word, std::vector<std::uint32_t>& ids) const override {
    ids.push_back(id_of_text(word).value_or(unknown()));
    return 0;
  }
};

}  // namespace

std::unique_ptr<TokenModel> read_word_piece(const JsonFields& fields, const TokenTexts& special) {
  fields.allow(
      {"type", "unk_token", "continuing_subword_prefix", "max_input_chars_per_word", "vocab"});
  return std::make_unique<WordPieceModel>(fields, special);
}

std::unique_ptr<TokenModel> read_word_level(const JsonFields& fields, const TokenTexts& special) {
  fields.allow({"type", "vocab", "unk_token"});
  return std::make_unique<WordLevelModel>(fields, special);
}

}  // namespace regroup
