// The merges of a SentencePiece BPE give the tokens that merging by score gives.
#include <algorithm>
#include <map>
#include <random>

#include <catch2/catch_test_macros.hpp>

#include "formats/vocabulary/vocabulary.h"
#include "tests/refusal.h"

namespace regroup {
namespace {

using Tokens = std::vector<std::string>;

Vocabulary scored(const std::vector<std::pair<std::string, float>>& tokens) {
  Vocabulary vocabulary;
  vocabulary.model = "llama";
  for (const auto& [text, score] : tokens) {
    vocabulary.tokens.push_back(text);
    vocabulary.scores.push_back(score);
    vocabulary.types.push_back(static_cast<std::int32_t>(TokenType::kNormal));
  }
  return vocabulary;
}

// Repeats the merge of the best pair, where better(pair, best) compares pairs of tokens.
template <typename Better>
Tokens merged(const std::string& text, const Better& rank_of) {
  Tokens tokens;
  for (const char letter : text) {
    tokens.emplace_back(1, letter);
  }
  while (true) {
    std::size_t place = tokens.size();
    double best = 0;
    for (std::size_t i = 0; i + 1 < tokens.size(); ++i) {
      const auto rank = rank_of(tokens[i], tokens[i + 1]);
      if (rank && (place == tokens.size() || *rank < best)) {  // of equal ones, the leftmost
        best = *rank;
        place = i;
      }
    }
    if (place == tokens.size()) {
      return tokens;
    }
    tokens[place] += tokens[place + 1];
    tokens.erase(tokens.begin() + static_cast<std::ptrdiff_t>(place) + 1);
  }
}

Tokens merged_by_score(const Vocabulary& vocabulary, const std::string& text) {
  std::map<std::string, double> scores;
  for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    scores[vocabulary.tokens[id]] = vocabulary.scores[id];
  }
  return merged(text, [&](const std::string& left, const std::string& right) {
    const auto whole = scores.find(left + right);
    return whole == scores.end() ? std::nullopt : std::optional(-whole->second);
  });
}

Tokens merged_by_rank(const std::vector<Merge>& merges, const std::string& text) {
  std::map<std::pair<std::string, std::string>, double> ranks;
  for (std::size_t rank = 0; rank < merges.size(); ++rank) {
    ranks.emplace(merges[rank], static_cast<double>(rank));
  }
  return merged(text, [&](const std::string& left, const std::string& right) {
    const auto found = ranks.find({left, right});
    return found == ranks.end() ? std::nullopt : std::optional(found->second);
  });
}

// Runs of 1 to 30 letters.
std::string random_runs(std::mt19937& numbers) {
  std::string text;
  for (int run = 0; run < 6; ++run) {
    text += std::string(1 + numbers() % 30, run % 2 == 0 ? 'a' : 'b');
  }
  return text;
}

std::string random_text(std::mt19937& numbers, std::size_t length) {
  std::string text;
  while (text.size() < length) {
    text += static_cast<char>('a' + numbers() % 3);
  }
  return text;
}

}  // namespace

TEST_CASE("pairs are in the order of the score of what they make", "[formats]") {
  const Vocabulary vocabulary =
      scored({{"a", -9}, {"b", -9}, {"ab", -2}, {"aba", -1}, {"ba", -3}, {"cab", -4}});
  const std::vector<Merge> expected{{"ab", "a"}, {"a", "ba"}, {"a", "b"}, {"b", "a"}};
  CHECK(merges_by_score(vocabulary, "v") == expected);
}

TEST_CASE("only normal tokens are merged and made", "[formats]") {
  Vocabulary vocabulary = scored({{"a", 0}, {"b", 0}, {"ab", -1}, {"ba", -2}, {"aba", -3}});
  vocabulary.types[2] = static_cast<std::int32_t>(TokenType::kControl);
  const std::vector<Merge> expected{{"b", "a"}, {"a", "ba"}};
  CHECK(merges_by_score(vocabulary, "v") == expected);
}

// A vocabulary learned as BPE does: each token is made of two before it and has a lower score.
TEST_CASE("merges give the tokens of merging by score", "[formats]") {
  std::mt19937 numbers(1);
  for (int round = 0; round < 40; ++round) {
    std::vector<std::pair<std::string, float>> tokens{{"a", -900}, {"b", -901}, {"c", -902}};
    for (int tries = 0; tries < 60; ++tries) {
      const std::string text =
          tokens[numbers() % tokens.size()].first + tokens[numbers() % tokens.size()].first;
      const bool is_new = std::none_of(tokens.begin(), tokens.end(),
                                       [&](const auto& token) { return token.first == text; });
      if (is_new && text.size() <= 9) {
        tokens.emplace_back(text, -static_cast<float>(tokens.size()));
      }
    }
    const Vocabulary vocabulary = scored(tokens);
    const std::vector<Merge> merges = merges_by_score(vocabulary, "v");
    for (int text = 0; text < 25; ++text) {
      const std::string letters = random_text(numbers, 1 + numbers() % 60);
      CAPTURE(round, letters);
      CHECK(merged_by_rank(merges, letters) == merged_by_score(vocabulary, letters));
    }
  }
}

// Llama's and Mistral's runs of spaces.
TEST_CASE("runs of one character may have the same score", "[formats]") {
  std::mt19937 numbers(2);
  for (const std::vector<int>& lengths :
       {std::vector{2, 3, 4, 5, 6, 7}, {2, 4, 8}, {2, 3, 6}, {3}}) {
    std::vector<std::pair<std::string, float>> tokens{
        {"a", -900}, {"b", -901}, {"ab", -1}, {"ba", -2}};
    for (const int length : lengths) {
      tokens.emplace_back(std::string(static_cast<std::size_t>(length), 'a'), -1000);
      tokens.emplace_back(std::string(static_cast<std::size_t>(length), 'b'), -1000);
    }
    const Vocabulary vocabulary = scored(tokens);
    const std::vector<Merge> merges = merges_by_score(vocabulary, "v");
    for (std::size_t text = 1; text < 300; ++text) {
      const std::string letters = text < 40 ? std::string(text, 'a') : random_runs(numbers);
      CAPTURE(letters, lengths);
      CHECK(merged_by_rank(merges, letters) == merged_by_score(vocabulary, letters));
    }
  }
}

TEST_CASE("equal scores of tokens whose pairs cannot overlap need no order", "[formats]") {
  const Vocabulary vocabulary =
      scored({{"a", 0}, {"b", 0}, {"c", 0}, {"d", 0}, {"ab", -1}, {"cd", -1}, {"abcd", -2}});
  CHECK(merges_by_score(vocabulary, "v").size() == 3);
  CHECK(merged_by_rank(merges_by_score(vocabulary, "v"), "cdabcdab") ==
        merged_by_score(vocabulary, "cdabcdab"));
}

TEST_CASE("equal scores of tokens that can be made are refused", "[formats]") {
  CHECK_THAT(refusal_of([] {
               merges_by_score(scored({{"a", 0}, {"b", 0}, {"ab", -1}, {"ba", -1}}), "v.gguf");
             }),
             is_bad_input("v.gguf: ", "ab", "ba", "same score"));
  CHECK_THAT(refusal_of([] {
               merges_by_score(scored({{"a", 0}, {"b", 0}, {"aa", -1}, {"ab", -1}}), "v.gguf");
             }),
             is_bad_input("aa", "ab", "same score"));
}

TEST_CASE("tokens so long that their merges take seconds are refused", "[formats]") {
  std::vector<std::pair<std::string, float>> tokens;
  for (int length = 1; length < 1000; ++length) {
    tokens.emplace_back(std::string(static_cast<std::size_t>(length), 'a'), -length);
  }
  CHECK_THAT(refusal_of([&] { merges_by_score(scored(tokens), "v.gguf"); }),
             is_bad_input("v.gguf: the tokens are too long"));
}

}  // namespace regroup
