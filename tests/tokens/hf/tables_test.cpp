// The tables behind tokenizers: numbers, tries of bytes, remembered words.
#include <map>
#include <random>

#include <catch2/catch_test_macros.hpp>

#include "tokens/hf/bpe_model.h"
#include "tokens/hf/pieces.h"

namespace regroup {

TEST_CASE("a number table finds what was set last, and nothing else", "[tokens]") {
  std::mt19937_64 random(7);
  std::map<std::uint64_t, std::uint64_t> expected;
  NumberTable table;
  for (int i = 0; i < 20'000; ++i) {
    const std::uint64_t key = random() % 10'000;
    expected[key] = static_cast<std::uint64_t>(i);
    table.set(key, static_cast<std::uint64_t>(i));
  }
  CHECK(table.size() == expected.size());
  for (std::uint64_t key = 0; key < 12'000; ++key) {
    const auto found = expected.find(key);
    REQUIRE(table.find(key) == (found == expected.end() ? NumberTable::kNone : found->second));
  }
}

TEST_CASE("a trie finds all keys that a text begins with, shortest first", "[tokens]") {
  const ByteTrie trie({{"a", 1}, {"abc", 2}, {"abcd", 3}, {"b", 4}, {"a", 5}});
  const auto found = [&](std::string_view text) {
    std::vector<std::pair<std::size_t, std::uint32_t>> keys;
    trie.for_each_prefix(
        text, [&](std::size_t length, std::uint32_t value) { keys.emplace_back(length, value); });
    return keys;
  };
  using Keys = std::vector<std::pair<std::size_t, std::uint32_t>>;
  CHECK(found("abcx") == Keys{{1, 1}, {3, 2}});
  CHECK(found("abcd") == Keys{{1, 1}, {3, 2}, {4, 3}});
  CHECK(found("b") == Keys{{1, 4}});
  CHECK(found("c").empty());
  CHECK(found("").empty());
}

TEST_CASE("a trie of many keys finds those that a search through all of them finds", "[tokens]") {
  std::mt19937_64 random(11);
  std::map<std::string, std::uint32_t> keys;
  const auto some_text = [&](std::size_t most) {
    std::string text(1 + random() % most, '\0');
    for (char& byte : text) {  // few bytes follow many others, and many follow one
      byte = static_cast<char>(random() % 3 == 0 ? random() % 256 : 'a' + random() % 2);
    }
    return text;
  };
  for (std::uint32_t i = 0; i < 20'000; ++i) {
    keys.emplace(some_text(6), i);
  }
  const ByteTrie trie({keys.begin(), keys.end()});
  for (int i = 0; i < 20'000; ++i) {
    const std::string text = some_text(9);
    std::map<std::size_t, std::uint32_t> expected, found;
    for (std::size_t length = 1; length <= text.size(); ++length) {
      if (const auto key = keys.find(text.substr(0, length)); key != keys.end()) {
        expected.emplace(length, key->second);
      }
    }
    trie.for_each_prefix(
        text, [&](std::size_t length, std::uint32_t value) { found.emplace(length, value); });
    REQUIRE(found == expected);
  }
}

TEST_CASE("a cache of words gives back the ids it was given, and forgets when it is full",
          "[tokens]") {
  WordCache cache;
  const auto ids_of = [](int i) {
    return std::vector<std::uint32_t>(static_cast<std::size_t>(i % 5),
                                      static_cast<std::uint32_t>(i));
  };
  const auto word_of = [](int i) { return "word" + std::to_string(i); };
  constexpr int kWords = 200'000;  // more than fit
  for (int i = 0; i < kWords; ++i) {
    REQUIRE_FALSE(cache.find(word_of(i)));
    cache.put(word_of(i), ids_of(i));
  }
  int kept = 0;
  for (int i = 0; i < kWords; ++i) {
    if (const auto found = cache.find(word_of(i))) {
      const auto expected = ids_of(i);
      REQUIRE(std::vector<std::uint32_t>(found->begin(), found->end()) == expected);
      ++kept;
    }
  }
  CHECK(kept > 1000);
  CHECK(kept < kWords);
  cache.put(std::string(1000, 'a'), ids_of(1));
  CHECK_FALSE(cache.find(std::string(1000, 'a')));  // too long to keep
}

}  // namespace regroup
