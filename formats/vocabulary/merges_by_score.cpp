#include "formats/vocabulary/merges_by_score.h"

#include <algorithm>
#include <functional>
#include <unordered_map>

#include "formats/base/error.h"
#include "formats/base/printable.h"
#include "formats/base/utf8.h"

namespace regroup {
namespace {

// The sum of the squares of the tokens' lengths, which bounds the time and the bytes of all merges.
// Known vocabularies have up to 4e7.
constexpr std::uint64_t kMaxMergeWork = std::uint64_t{1} << 28;

using TokenScores = std::unordered_map<std::string_view, float>;

TokenScores normal_tokens(const Vocabulary& vocabulary, std::string_view where) {
  TokenScores tokens;
  std::uint64_t work = 0;
  for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    const std::string& text = vocabulary.tokens[id];
    if (static_cast<TokenType>(vocabulary.types[id]) == TokenType::kNormal) {
      tokens.emplace(text, vocabulary.scores[id]);
      work += std::uint64_t{text.size()} * text.size();
    }
  }
  if (work > kMaxMergeWork) {
    throw_bad_input("{}: the tokens are too long: the squares of their lengths sum to {}, at most "
                    "{} are allowed",
                    where, work, kMaxMergeWork);
  }
  return tokens;
}

// Where `token` can be cut into two tokens, the longest first half first.
std::vector<std::size_t> cuts_of(const TokenScores& tokens, std::string_view token) {
  std::vector<std::size_t> cuts;
  for (std::size_t cut = token.size(); cut-- > 1;) {
    if (!continues_utf8(token[cut]) && tokens.contains(token.substr(0, cut)) &&
        tokens.contains(token.substr(cut))) {
      cuts.push_back(cut);
    }
  }
  return cuts;
}

// Two pairs that make `token` can overlap in a text, as l m and m r in "l m r" with l m = m r. The
// left one is cut after a period of the token, the right one as far from the other end. It must
// come first.
void put_leftmost_first(std::vector<std::size_t>& cuts, std::string_view token) {
  const auto is_period = [&](std::size_t length) {
    return token.substr(length) == token.substr(0, token.size() - length);
  };
  const std::vector<std::size_t> before = cuts;
  for (std::size_t i = 0; i < before.size() && 2 * before[i] > token.size(); ++i) {
    const std::size_t mirrored = token.size() - before[i];
    const auto found =
        std::lower_bound(before.begin(), before.end(), mirrored, std::greater<std::size_t>());
    if (found != before.end() && *found == mirrored && is_period(mirrored) &&
        !is_period(before[i])) {
      std::swap(cuts[i], cuts[static_cast<std::size_t>(found - before.begin())]);
    }
  }
}

}  // namespace

std::vector<Merge> merges_by_score(const Vocabulary& vocabulary, std::string_view where) {
  const TokenScores tokens = normal_tokens(vocabulary, where);
  std::vector<std::pair<float, std::string_view>> order;
  for (const auto& [text, score] : tokens) {
    order.emplace_back(-score, text);
  }
  std::sort(order.begin(), order.end());
  std::vector<Merge> merges;
  const std::pair<float, std::string_view>* before = nullptr;  // the last token that can be made
  for (const auto& each : order) {
    std::vector<std::size_t> cuts = cuts_of(tokens, each.second);
    if (cuts.empty()) {
      continue;
    }
    if (before != nullptr && before->first == each.first) {
      throw_bad_input("{}: the tokens {} and {} have the same score: which of them is merged first "
                      "is unknown",
                      where, printable(before->second, 60), printable(each.second, 60));
    }
    before = &each;
    put_leftmost_first(cuts, each.second);
    for (const std::size_t cut : cuts) {
      merges.emplace_back(each.second.substr(0, cut), each.second.substr(cut));
    }
  }
  return merges;
}

}  // namespace regroup
