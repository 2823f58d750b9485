#include "tokens/hf/added_tokens.h"

#include <algorithm>
#include <unordered_set>

#include "formats/base/printable.h"
#include "tokens/hf/unicode.h"
#include "tokens/hf/work.h"

namespace regroup {
namespace {

constexpr std::size_t kMaxAddedTokens = 1U << 16;
constexpr std::size_t kMaxContent = 1000;

// The first byte of the character that ends before `end`.
std::size_t character_before(std::string_view text, std::size_t end) {
  std::size_t begin = end - 1;
  while (begin > 0 && continues_utf8(text[begin])) {
    --begin;
  }
  return begin;
}

bool word_ends_at(std::string_view text, std::size_t end) {
  std::size_t at = end == 0 ? 0 : character_before(text, end);
  return end > 0 && is_word_character(next_character(text, at));
}

bool word_begins_at(std::string_view text, std::size_t begin) {
  return begin < text.size() && is_word_character(next_character(text, begin));
}

std::size_t spaces_before(std::string_view text, std::size_t end, std::size_t least) {
  while (end > least) {
    const std::size_t begin = character_before(text, end);
    std::size_t at = begin;
    if (!is_white_space(next_character(text, at))) {
      break;
    }
    end = begin;
  }
  return std::max(end, least);
}

// `known` is the end of the white space that was found last, which may reach from here on.
std::size_t spaces_after(std::string_view text, std::size_t begin, std::size_t known) {
  begin = std::max(begin, known);
  const std::size_t first = begin;
  for (std::size_t at = begin; at < text.size() && is_white_space(next_character(text, at));) {
    begin = at;
  }
  Work::of_thread().step(begin - first, "the white space that added tokens take");
  return begin;
}

}  // namespace

std::vector<AddedToken> read_added_tokens(const JsonFields& tokenizer) {
  std::vector<AddedToken> tokens;
  if (tokenizer.at("added_tokens").is_null()) {
    return tokens;
  }
  if (tokenizer.at("added_tokens").size() > kMaxAddedTokens) {
    tokenizer.refuse("added_tokens", "a list of at most 65,536 tokens");
  }
  std::unordered_set<std::string> contents;
  for (const JsonFields& fields : tokenizer.objects("added_tokens")) {
    fields.allow({"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"});
    AddedToken token{.id = fields.count("id"),
                     .content = fields.text("content"),
                     .special = fields.flag("special"),
                     .normalized = fields.flag("normalized"),
                     .single_word = fields.flag("single_word"),
                     .lstrip = fields.flag("lstrip"),
                     .rstrip = fields.flag("rstrip"),
                     .where = fields.where()};
    if (token.content.empty() || token.content.size() > kMaxContent) {
      fields.refuse("content", "a text of 1 to 1,000 bytes");
    }
    if (!contents.insert(token.content).second) {
      fields.refuse("content", "a token that was not added before");
    }
    tokens.push_back(std::move(token));
  }
  return tokens;
}

AddedTokenFinder::AddedTokenFinder(const std::vector<Sought>& sought) {
  std::vector<ByteTrie::Key> keys;
  for (const auto& [token, text] : sought) {
    keys.emplace_back(text, static_cast<std::uint32_t>(keys.size()));
    tokens_.push_back(token);
  }
  trie_ = ByteTrie(std::move(keys));
}

const AddedToken* AddedTokenFinder::longest_at(std::string_view text, std::size_t& length) const {
  const AddedToken* token = nullptr;
  const std::size_t steps =
      trie_.for_each_prefix(text, [&](std::size_t bytes, std::uint32_t index) {
        length = bytes;
        token = &tokens_[index];
      });
  Work::of_thread().step(steps, "the search for added tokens");
  return token;
}

void AddedTokenFinder::encode(std::string_view text, std::vector<std::uint32_t>& ids,
                              const Between& between) const {
  std::size_t done = 0, spaces_end = 0;
  const auto encode_until = [&](std::size_t end) {
    if (done < end) {
      between(text.substr(done, end - done), done == 0);
    }
  };
  for (std::size_t at = 0; at < text.size() && !tokens_.empty();) {
    std::size_t length = 0;
    const AddedToken* token =
        trie_.has_key_with_first(text[at]) ? longest_at(text.substr(at), length) : nullptr;
    if (token == nullptr) {
      ++at;
      continue;
    }
    const std::size_t begin = at;
    at += length;
    if ((token->special && !finds_special_) ||
        (token->single_word && (word_ends_at(text, begin) || word_begins_at(text, at)))) {
      continue;
    }
    encode_until(token->lstrip ? spaces_before(text, begin, std::min(done, begin)) : begin);
    ids.push_back(static_cast<std::uint32_t>(token->id));
    done = token->rstrip ? spaces_after(text, at, spaces_end) : at;
    spaces_end = token->rstrip ? done : spaces_end;
  }
  encode_until(text.size());
}

}  // namespace regroup
