// Added tokens: where they are found, and special ones that a text spells out.
#include <catch2/catch_test_macros.hpp>

#include "tests/refusal.h"
#include "tests/tokens/hf/tokenizer_parts.h"

namespace regroup {
namespace {

using Ids = std::vector<std::uint32_t>;

// "a" 0, "b" 1, " " 2, "y" 3, "<" 4, ">" 5 and the added tokens from 6 on.
Ids ids_with(nlohmann::json added, std::string_view text) {
  nlohmann::json tokenizer = character_tokenizer({"a", "b", " ", "y", "<", ">"});
  for (std::size_t i = 0; i < added.size(); ++i) {
    added[i].update({{"id", 6 + i}});
    tokenizer["added_tokens"].push_back(added_token(added[i]));
  }
  Ids ids;
  opened(tokenizer)->encode(text, true, ids);
  return ids;
}

}  // namespace

TEST_CASE("special tokens spelled out in a text are text", "[tokens]") {
  CHECK(ids_with({{{"content", "<y>"}, {"special", true}}}, "a<y>b") == Ids{0, 4, 3, 5, 1});
  CHECK(ids_with({{{"content", "<y>"}}}, "a<y>b") == Ids{0, 6, 1});
}

TEST_CASE("special tokens spelled out in a text are found on request", "[tokens]") {
  nlohmann::json tokenizer = character_tokenizer({"a", "b", "<", ">", "y"});
  tokenizer["normalizer"] = {{"type", "Lowercase"}};
  for (const bool normalized : {true, false}) {
    tokenizer["added_tokens"] = nlohmann::json::array({added_token(
        {{"content", "<y>"}, {"id", 5}, {"special", true}, {"normalized", normalized}})});
    const auto made = opened(tokenizer);
    REQUIRE(made->parse_special());
    Ids ids;
    made->encode("a<y>b<Y>", true, ids);
    CHECK(ids == (normalized ? Ids{0, 5, 1, 5} : Ids{0, 5, 1, 2, 4, 3}));
  }
  CHECK_FALSE(open_tokenizer("bytes")->parse_special());
}

TEST_CASE("a special token of the vocabulary is not found in a text", "[tokens]") {
  nlohmann::json tokenizer = character_tokenizer({"a", "[U]"});
  tokenizer["model"] = {
      {"type", "WordLevel"}, {"unk_token", "[U]"}, {"vocab", {{"a", 0}, {"[U]", 1}, {"[S]", 2}}}};
  tokenizer["pre_tokenizer"] = {{"type", "WhitespaceSplit"}};
  tokenizer["added_tokens"] =
      nlohmann::json::array({added_token({{"content", "[S]"}, {"id", 2}, {"special", true}})});
  Ids ids;
  opened(tokenizer)->encode("a [S]", true, ids);
  CHECK(ids == Ids{0, 1});
  ids.clear();
  tokenizer["added_tokens"] = nlohmann::json::array();
  opened(tokenizer)->encode("a [S]", true, ids);
  CHECK(ids == Ids{0, 2});
}

TEST_CASE("of added tokens the leftmost is found, and of these the longest", "[tokens]") {
  const nlohmann::json added{{{"content", "ab"}}, {{"content", "abb"}}, {{"content", "ba"}}};
  CHECK(ids_with(added, "abba") == Ids{7, 0});
  CHECK(ids_with(added, "bab") == Ids{8, 1});
}

TEST_CASE("an added token takes white space and needs word boundaries as it says", "[tokens]") {
  CHECK(ids_with({{{"content", "x"}, {"lstrip", true}}}, "a  x b") == Ids{0, 6, 2, 1});
  CHECK(ids_with({{{"content", "x"}, {"rstrip", true}}}, "a x  b") == Ids{0, 2, 6, 1});
  CHECK(ids_with({{{"content", "x"}, {"single_word", true}}}, "ax x y") == Ids{0, 2, 6, 2, 3});
}

TEST_CASE("normalized tokens are looked for in normalized text", "[tokens]") {
  nlohmann::json tokenizer = character_tokenizer({"a", "b"});
  tokenizer["normalizer"] = {{"type", "Lowercase"}};
  for (const bool normalized : {true, false}) {
    tokenizer["added_tokens"] = nlohmann::json::array(
        {added_token({{"content", "AB"}, {"id", 2}, {"normalized", normalized}})});
    Ids ids;
    opened(tokenizer)->encode("abAB", true, ids);
    CHECK(ids == (normalized ? Ids{2, 2} : Ids{0, 1, 2}));
  }
}

TEST_CASE("ids that are not where Python would put them are refused", "[tokens]") {
  nlohmann::json tokenizer = character_tokenizer({"a", "b"});
  const auto refusal = [&](const nlohmann::json& token) {
    tokenizer["added_tokens"] = nlohmann::json::array({added_token(token)});
    return refusal_of([&] { opened(tokenizer); });
  };
  CHECK_THAT(refusal({{"content", "x"}, {"id", 3}}), is_bad_input("the id 3", "is 2"));
  CHECK_THAT(refusal({{"content", "b"}, {"id", 2}}), is_bad_input("the id 2", "is 1"));
}

}  // namespace regroup
