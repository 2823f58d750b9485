// The tables behind tokenizers: numbers, tries of bytes, remembered words.
#include <map>
#include <random>

#include <catch2/catch_test_macros.hpp>

#include "tokens/hf/byte_trie.h"
#include "tokens/hf/number_table.h"
#include "tokens/hf/word_cache.h"

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
  ByteTrie trie;
  trie.add("a", 1);
  trie.add("abc", 2);
  trie.add("abcd", 3);
  trie.add("b", 4);
  trie.add("a", 5);  // the first value stays
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
