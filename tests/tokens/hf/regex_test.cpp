// Regular expressions in Oniguruma's syntax, matched by PCRE2.
#include "tokens/hf/regex.h"

#include <chrono>

#include <catch2/catch_test_macros.hpp>

#include "tests/refusal.h"
#include "tokens/hf/work.h"

namespace regroup {
namespace {

using Matches = std::vector<std::string>;

Matches matches_of(std::string_view pattern, std::string_view text) {
  Matches matches;
  Regex(pattern, "test").for_each_match(text, [&](std::size_t begin, std::size_t end) {
    matches.emplace_back(text.substr(begin, end - begin));
  });
  return matches;
}

Error refusal_of_pattern(std::string_view pattern) {
  return refusal_of([&] { Regex(pattern, "file.json"); });
}

}  // namespace

TEST_CASE("a pattern matches from left to right, without empty matches behind a match",
          "[tokens]") {
  CHECK(matches_of("a+", "aabaaa") == Matches{"aa", "aaa"});
  CHECK(matches_of("a*", "baac") == Matches{"", "aa", ""});
  CHECK(matches_of("", "\u00e4b") == Matches{"", "", ""});
  CHECK(matches_of("x", "") == Matches{});
}

TEST_CASE("classes are Unicode's, as Oniguruma has them", "[tokens]") {
  CHECK(matches_of(R"(\s+)", "a\u00a0\u3000b\u180ec\u200b\x85") == Matches{"\u00a0\u3000"});
  CHECK(matches_of(R"(\w+)", "e\u0301t\u00e9_1 \u00b2 +") == Matches{"e\u0301t\u00e9_1", "\u00b2"});
  CHECK(matches_of(R"([^\s\p{L}\p{N}]+)", "a!? \u00bd\u00a7 b") == Matches{"!?", "\u00a7"});
  CHECK(matches_of(R"(\P{L})", "a1") == Matches{"1"});
  CHECK(matches_of(R"(\p{^L})", "a1") == Matches{"1"});
  CHECK(matches_of(R"(\p{Han}+)", "a\u6f22\u5b57\u3042") == Matches{"\u6f22\u5b57"});
  CHECK(matches_of(R"(\p{Lu})", "\ua7dc\u1c89") == Matches{"\ua7dc", "\u1c89"});  // of Unicode 16
  CHECK(matches_of(R"([a[b-c]x]+)", "abcx[") == Matches{"abcx"});
  CHECK(matches_of(R"([]a]+)", "]a") == Matches{"]a"});
}

TEST_CASE("syntax that both libraries have means what Oniguruma means", "[tokens]") {
  CHECK(matches_of("(?i:'S)|x", "'s'Sx") == Matches{"'s", "'S", "x"});
  CHECK(matches_of("^a|b$", "a\na\nb\nb") == Matches{"a", "a", "b", "b"});  // at each line
  CHECK(matches_of(R"(\Aa|b\z)", "a\na\nb\nb") == Matches{"a", "b"});
  CHECK(matches_of("a{2}|b{,2}", "aabbb") == Matches{"aa", "bb", "b"});
  CHECK(matches_of("a{x}", "a{x}") == Matches{"a{x}"});
  CHECK(matches_of(R"(\x41\x{1F600}\u00e4)", "A\U0001f600\u00e4") == Matches{"A\U0001f600\u00e4"});
  CHECK(matches_of(R"(.)", "a\n\r") == Matches{"a", "\r"});
  CHECK(matches_of(R"((?<=a)b(?!c)|(?<!a)d(?=e))", "abc ab ade de") == Matches{"b", "d"});
}

TEST_CASE("patterns that the libraries read differently are refused", "[tokens]") {
  for (const std::string pattern :
       {"(?<name>a)", "(?#x)a",  "(?x: a)", "(*FAIL)", "[a&&b]",       "[[:alpha:]]", "[^[^a]]",
        R"(\h)",      R"(\b)",   R"(\1)",   R"(\Ga)",  R"(\p{Alpha})", R"([\W])",     "a{2}+",
        "a{2}?",      R"(\x{})", R"(\xA)",  "a\\",     "[a",           "a(?i)b"}) {
    CAPTURE(pattern);
    CHECK_THAT(refusal_of_pattern(pattern), is_bad_input("file.json", "regular expression"));
  }
  CHECK_THAT(refusal_of_pattern("(a"), is_bad_input("malformed"));
  CHECK_THAT(refusal_of_pattern("*"), is_bad_input("malformed"));
  CHECK_THAT(refusal_of_pattern(std::string(20'000, 'a')), is_bad_input("20000 bytes", "16384"));
  CHECK_THAT(refusal_of_pattern(std::string(1000, '(') + std::string(1000, ')')),
             is_bad_input("malformed", "nested"));
}

TEST_CASE("a pattern that takes too many steps on a text is refused", "[tokens]") {
  const std::string text(5000, 'a');
  CHECK_THAT(refusal_of([&] { matches_of("(a+)+[bc]", text); }),
             is_bad_input("test", "(a+)+[bc]", "2000000 steps"));
  // Control: the same text and a harmless pattern.
  CHECK(matches_of("(a+)+", text).size() == 1);
}

TEST_CASE("patterns whose time is over are refused", "[tokens]") {
  const std::string text(2000, 'a');
  Work::of_thread().begin("test", text.size(), std::chrono::nanoseconds(0));
  CHECK_THAT(refusal_of([&] { matches_of("a", text); }),
             is_bad_input("test", "takes longer", "at last a"));
  Work::of_thread().begin("test", 0);
  CHECK(matches_of("a", text).size() == 2000);
}

TEST_CASE("long runs need no more memory or steps than are allowed", "[tokens]") {
  const std::string text(1U << 20, ' ');
  Work::of_thread().begin("test", text.size());
  CHECK(matches_of(R"(\s*[\r\n]+|\s+(?!\S)|\s+)", text) == Matches{text});
  CHECK(matches_of(R"((?:a|b)+)", std::string(1U << 20, 'b')).size() == 1);
}

}  // namespace regroup
