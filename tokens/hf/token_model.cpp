#include "tokens/hf/token_model.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "formats/base/error.h"
#include "tokens/hf/pieces.h"
#include "tokens/hf/unicode.h"
#include "tokens/hf/work.h"

namespace regroup {
namespace {

// Throws kBadInput if the texts of a vocabulary have more than 16 MiB: a trie needs up to 64 bytes
// of memory for each of theirs. Published vocabularies have up to 10 MB.
void check_vocabulary_bytes(const JsonFields& model, std::size_t bytes) {
  constexpr std::size_t kMaxBytes = 16U << 20;
  if (bytes > kMaxBytes) {
    model.refuse("vocab", "a vocabulary of at most 16 MiB of text");
  }
}

// WordPiece: a word is cut into the longest pieces of the vocabulary, from left to right.
// WordLevel: each word is a token.

// The tokens that are found in text.
std::vector<ByteTrie::Key> ordinary_tokens(const TokenIds& ids, const TokenTexts& special) {
  std::vector<ByteTrie::Key> tokens;
  for (const auto& [text, id] : ids) {
    if (!text.empty() && !special.contains(text)) {
      tokens.emplace_back(text, id);
    }
  }
  return tokens;
}

// A vocabulary of words or of their pieces.
class WordModel : public TokenModel {
 public:
  explicit WordModel(const JsonFields& fields) : TokenModel(read_vocabulary_ids(fields)) {
    const auto unknown = id_of(fields.text("unk_token"));
    if (!unknown) {
      fields.refuse("unk_token", "a token of the vocabulary");
    }
    unknown_ = *unknown;
  }

 protected:
  std::uint32_t unknown_ = 0;
};

class WordPieceModel : public WordModel {
 public:
  static constexpr std::uint32_t kLongestWord = 1000;  // the work grows with its square

  WordPieceModel(const JsonFields& fields, const TokenTexts& special)
      : WordModel(fields), longest_(fields.count("max_input_chars_per_word")) {
    const std::string prefix = fields.text("continuing_subword_prefix");
    std::vector<ByteTrie::Key> first = ordinary_tokens(ids_, special), others;
    for (const auto& [text, id] : first) {
      if (text.size() > prefix.size() && text.starts_with(prefix)) {
        others.emplace_back(text.substr(prefix.size()), id);
      }
    }
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
      ids.push_back(unknown_);
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
  WordLevelModel(const JsonFields& fields, const TokenTexts& special)
      : WordModel(fields), special_(special) {}
  std::size_t encode(std::string_view word, std::vector<std::uint32_t>& ids) const override {
    ids.push_back(special_.contains(word) ? unknown_ : id_of(word).value_or(unknown_));
    return 0;
  }

 private:
  TokenTexts special_;
};

std::unique_ptr<TokenModel> read_word_piece(const JsonFields& fields, const TokenTexts& special) {
  fields.allow(
      {"type", "unk_token", "continuing_subword_prefix", "max_input_chars_per_word", "vocab"});
  return std::make_unique<WordPieceModel>(fields, special);
}

std::unique_ptr<TokenModel> read_word_level(const JsonFields& fields, const TokenTexts& special) {
  fields.allow({"type", "vocab", "unk_token"});
  return std::make_unique<WordLevelModel>(fields, special);
}

// Unigram: of all ways to cut a word into pieces, the one whose scores have the largest sum.

constexpr double kUnknownPenalty = 10.0;
constexpr std::size_t kNowhere = ~std::size_t{0};

// The best way to a place in a word: where its last piece begins, and the sum of scores.
struct BestStep {
  double score = 0;
  std::size_t begin = kNowhere;
  std::uint32_t id = 0;
};

// The double that the tokenizers package reads from the shortest text of `number`: its JSON parser
// rounds twice (the digits, then the division by a power of ten). The difference decides between
// paths of equal scores.
double rounded_twice(double number) {
  std::array<char, 32> text{};
  const auto end =
      std::to_chars(text.begin(), text.end(), std::abs(number), std::chars_format::scientific).ptr;
  const char* const mark = std::find(text.begin(), end, 'e');
  std::uint64_t digits = 0;
  int exponent = 0;
  std::from_chars(mark[1] == '+' ? mark + 2 : mark + 1, end, exponent);
  for (const char* at = text.begin(); at != mark; ++at) {
    if (*at != '.') {
      digits = 10 * digits + static_cast<std::uint64_t>(*at - '0');
      exponent -= at > text.begin() ? 1 : 0;
    }
  }
  const double power = std::pow(10.0, std::abs(exponent));
  const double value =
      exponent < 0 ? static_cast<double>(digits) / power : static_cast<double>(digits) * power;
  return std::copysign(value, number);
}

struct ScoredPieces {
  TokenIds ids;
  std::vector<double> scores;  // by id
};

ScoredPieces read_pieces(const JsonFields& fields) {
  constexpr std::size_t kMaxPieces = 4U << 20;
  constexpr std::size_t kMaxPieceBytes = 4096;  // each place of a text may begin one
  const nlohmann::json& listed = fields.at("vocab");
  if (!listed.is_array() || listed.empty() || listed.size() > kMaxPieces) {
    fields.refuse("vocab", "a list of 1 to 4,194,304 pieces");
  }
  ScoredPieces pieces;
  std::size_t bytes = 0;
  for (const nlohmann::json& piece : listed) {
    const std::size_t id = pieces.scores.size();
    if (!piece.is_array() || piece.size() != 2 || !piece[0].is_string() || !piece[1].is_number()) {
      throw_bad_input("{}: {}[{}] is not a piece and its score", fields.where(),
                      fields.name_of("vocab"), id);
    }
    const auto& text = piece[0].get_ref<const std::string&>();
    if (text.size() > kMaxPieceBytes) {
      throw_bad_input("{}: {}[{}] has {} bytes, at most {} are allowed", fields.where(),
                      fields.name_of("vocab"), id, text.size(), kMaxPieceBytes);
    }
    bytes += text.size();
    // Of two equal pieces the last one counts.
    pieces.ids.insert_or_assign(text, static_cast<std::uint32_t>(id));
    pieces.scores.push_back(rounded_twice(piece[1].get<double>()));
  }
  check_vocabulary_bytes(fields, bytes);
  return pieces;
}

class UnigramModel : public TokenModel {
 public:
  UnigramModel(const JsonFields& fields, ScoredPieces pieces, const TokenTexts& special)
      : TokenModel(std::move(pieces.ids)),
        where_(fields.where()),
        scores_(std::move(pieces.scores)),
        unknown_score_(*std::ranges::min_element(scores_) - kUnknownPenalty) {
    if (!fields.at("unk_id").is_null()) {
      unknown_ = fields.count("unk_id");
      if (*unknown_ >= scores_.size()) {
        fields.refuse("unk_id", "an id of the vocabulary");
      }
    }
    bytes_ = fields.flag("byte_fallback", false) ? byte_ids() : ByteIds{};
    trie_ = ByteTrie(ordinary_tokens(ids_, special));
  }

  std::size_t encode(std::string_view word, std::vector<std::uint32_t>& ids) const override {
    const std::vector<BestStep> steps = best_steps(word);
    std::vector<std::pair<std::size_t, std::uint32_t>> path;  // the pieces, last first
    for (std::size_t end = word.size(); end > 0; end = steps[end].begin) {
      path.emplace_back(end, steps[end].id);
    }
    std::size_t begin = 0;
    for (std::size_t i = path.size(); i-- > 0;) {
      const auto [end, id] = path[i];
      if (id == unknown_ && i > 0 && path[i - 1].second == unknown_) {
        continue;  // neighbours are one unknown
      }
      if (id != unknown_ || !append_byte_ids(bytes_, word.substr(begin, end - begin), ids)) {
        ids.push_back(id);
      }
      begin = end;
    }
    return 0;
  }

  std::size_t size() const override { return scores_.size(); }

 private:
  // The best step to each place of the word (Viterbi's algorithm).
  std::vector<BestStep> best_steps(std::string_view word) const {
    Work& work = Work::of_thread();
    work.check_memory((word.size() + 1) * sizeof(BestStep));
    std::vector<BestStep> steps(word.size() + 1);
    const auto reach = [&](std::size_t begin, std::size_t end, double score, std::uint32_t id) {
      BestStep& step = steps[end];
      if (step.begin == kNowhere || score > step.score) {
        step = {score, begin, id};
      }
    };
    for (std::size_t at = 0; at < word.size();) {
      std::size_t next = at;
      next_character(word, next);
      const double here = steps[at].score;
      bool has_character = false;
      const std::size_t looked =
          trie_.for_each_prefix(word.substr(at), [&](std::size_t length, std::uint32_t id) {
            reach(at, at + length, scores_[id] + here, id);
            has_character = has_character || at + length == next;
          });
      work.step(looked, "Unigram");
      if (!has_character) {
        reach(at, next, unknown_score_ + here, unknown());
      }
      at = next;
    }
    return steps;
  }

  std::uint32_t unknown() const {
    if (!unknown_) {
      throw_bad_input("{}: a text has characters without a token, and model.unk_id is missing",
                      where_);
    }
    return *unknown_;
  }

  std::string where_;
  std::vector<double> scores_;
  double unknown_score_;
  std::optional<std::uint32_t> unknown_;
  ByteIds bytes_;
  ByteTrie trie_;
};

std::unique_ptr<TokenModel> read_unigram(const JsonFields& fields, const TokenTexts& special) {
  fields.allow({"type", "unk_id", "vocab", "byte_fallback"});
  return std::make_unique<UnigramModel>(fields, read_pieces(fields), special);
}

}  // namespace

TokenModel::TokenModel(TokenIds ids) : ids_(std::move(ids)) {
  for (const auto& [text, id] : ids_) {
    largest_ = std::max(largest_, id);
  }
}

std::optional<std::uint32_t> TokenModel::id_of(std::string_view token) const {
  const auto found = ids_.find(token);
  return found == ids_.end() ? std::nullopt : std::optional(found->second);
}

void TokenModel::for_each_token(const TokenVisitor& visit) const {
  for (const auto& [text, id] : ids_) {
    visit(id, text);
  }
}

TokenIds read_vocabulary_ids(const JsonFields& model) {
  constexpr std::size_t kMaxTokens = 4U << 20;
  const JsonFields vocabulary = model.object("vocab");
  const nlohmann::json& listed = vocabulary.json();
  if (listed.empty() || listed.size() > kMaxTokens) {
    model.refuse("vocab", "an object of 1 to 4,194,304 tokens");
  }
  TokenIds ids;
  ids.reserve(listed.size());
  std::size_t bytes = 0;
  for (const auto& [text, id] : listed.items()) {
    ids.emplace(text, vocabulary.count(text));
    bytes += text.size();
  }
  check_vocabulary_bytes(model, bytes);
  return ids;
}

ByteIds TokenModel::byte_ids() const {
  ByteIds bytes;
  for (int byte = 0; byte < 256; ++byte) {
    bytes[byte] = id_of(fmt::format("<0x{:02X}>", byte));
  }
  return bytes;
}

bool append_byte_ids(const ByteIds& bytes, std::string_view text, std::vector<std::uint32_t>& ids) {
  const auto id_of = [&](char byte) { return bytes[static_cast<unsigned char>(byte)]; };
  const bool whole = std::ranges::all_of(text, [&](char byte) { return id_of(byte).has_value(); });
  for (const char byte : whole ? text : std::string_view()) {
    ids.push_back(*id_of(byte));
  }
  return whole;
}

std::unique_ptr<TokenModel> read_token_model(const JsonFields& fields, const TokenTexts& special) {
  static const std::unordered_map<std::string, decltype(&read_bpe)> readers{
      {"BPE", read_bpe},
      {"Unigram", read_unigram},
      {"WordPiece", read_word_piece},
      {"WordLevel", read_word_level}};
  // Files before version 0.9 do not name the kind of a BPE.
  const std::string type =
      fields.optional_text("type").value_or(fields.at("merges").is_null() ? "" : "BPE");
  const auto reader = readers.find(type);
  if (reader == readers.end()) {
    fields.refuse("type", "a model that regroup supports");
  }
  return reader->second(fields, special);
}

}  // namespace regroup
