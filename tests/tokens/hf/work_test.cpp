// Tokenizers of strangers that would take all time or memory, each with a text that makes it do so.
#include "tokens/hf/work.h"

#include <atomic>
#include <chrono>
#include <ctime>

#include <catch2/catch_test_macros.hpp>

#include "tests/refusal.h"
#include "tests/tokens/hf/tokenizer_parts.h"
#include "tokens/hf/regex.h"

namespace regroup {
namespace {

using PlainJson = nlohmann::json;
using Ids = std::vector<std::uint32_t>;

// A run through the text for each place, inside of a match.
constexpr std::string_view kRunsInMatch = R"((?:[^#]|##)*?(?>[^#]*)[%$])";

std::size_t count_matches(std::string_view pattern, std::string_view text) {
  std::size_t count = 0;
  Regex(pattern, "test").for_each_match(text, [&](std::size_t, std::size_t) { ++count; });
  return count;
}

std::string counted(std::string_view pattern) {
  return with_callouts(pcre2_pattern(pattern, "test")).pattern;
}

PlainJson replacing(std::string_view pattern, const std::string& content) {
  return {{"type", "Replace"}, {"pattern", {{"Regex", pattern}}}, {"content", content}};
}

PlainJson splitting(std::string_view pattern) {
  return {{"type", "Split"},
          {"pattern", {{"Regex", pattern}}},
          {"behavior", "Isolated"},
          {"invert", false}};
}

Ids ids_of(const PlainJson& tokenizer, const std::string& text) {
  Ids ids;
  opened(tokenizer)->encode(text, true, ids);
  return ids;
}

std::chrono::duration<double> processor_time() {
  return std::chrono::duration<double>(static_cast<double>(std::clock()) / CLOCKS_PER_SEC);
}

}  // namespace

TEST_CASE("the time of a match is over inside of it, too", "[tokens]") {
  const std::string text(1U << 20, 'a');
  for (const std::string& pattern :
       {std::string(kRunsInMatch), std::string("a(?=[^#]*#)(?=[^%]*%)|a(?=[^x]*x)")}) {
    CAPTURE(pattern);
    const auto begin = processor_time();
    Work::of_thread().begin("test", text.size(), std::chrono::milliseconds(200));
    CHECK_THAT(refusal_of([&] { count_matches(pattern, text); }),
               is_bad_input("test", "takes longer", pattern));
    CHECK(processor_time() - begin < std::chrono::seconds(5));  // not the minutes of one match
  }
  Work::of_thread().begin("test", 0);
  CHECK(count_matches(kRunsInMatch, text.substr(0, 100)) == 0);  // control: a short text has time
}

TEST_CASE("a match ends soon after a request to stop", "[tokens]") {
  const std::atomic<bool> stop{true};
  const std::string text(1U << 20, 'a');
  Work::of_thread().begin("test", 0);
  {
    const Work::Watch watch(stop);
    CHECK(refusal_of([&] { count_matches(kRunsInMatch, text); }).kind() == ErrorKind::kInterrupted);
  }
  CHECK(count_matches("a+", text) == 1);  // nobody watches any more
}

TEST_CASE("callouts are where a run could multiply others, and nowhere in published patterns",
          "[tokens]") {
  CHECK(counted("(a+)+[bc]") == "(?:(?C)a+)+[bc]");
  CHECK(counted("a*b*c") == "a*(?C)b*c");
  CHECK(counted("a*b*") == "a*b*");      // nothing can fail after the second
  CHECK(counted("a*b+c?") == "a*b+c?");  // so here
  CHECK(counted("a{2,}b{2,9}c|d{2}e{,2}f") == "a{2,}(?C)b{2,9}c|d{2}e{0,2}f");
  CHECK(counted("a?b?c?d?e") == "a?b?c?(?C)d?e");
  CHECK(counted(R"(a*(?=[^\]]*x)\)+y)") == R"(a*(?C)(?=(?C)[^\]]*x)(?C)\)+y)");
  CHECK(counted("\u00e4*\u00f6*x") == "\u00e4*(?C)\u00f6*x");
  for (
      const std::string_view pattern :
      {R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)",
       R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
       R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lm}]*[\p{Ll}\p{Lm}]+(?i:'s|'t)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lm}]+[\p{Ll}\p{Lm}]*(?i:'s|'t)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"}) {
    CHECK(counted(pattern).find("(?C)") == std::string::npos);
  }
  std::string many = "a";
  for (int i = 0; i < 40; ++i) {
    many += "|[^#]*b";  // each place runs through all of them
  }
  CHECK(counted(many).find("(?C)[^#]*b|(?C)") != std::string::npos);
}

TEST_CASE("callouts do not change what is found", "[tokens]") {
  Work::of_thread().begin("test", 1U << 20);
  for (const auto& [pattern, text, matches] : {std::tuple{"(a+)+b", "aab ab b", 2},
                                               {"a*b*c", "aabbc bc c abd", 3},
                                               {R"(\d{1,3}(?=(?:\d{3})*x))", "1234567x12", 3},
                                               {R"((?:\r?\n)+x)", "\r\n\r\nx", 1},
                                               {R"(\p{L}+\r*\t*\n*;)", "a\r\t\n\n;", 1},
                                               {R"((?:\v+\a)+\e)", "\v\v\a\x1b", 1},
                                               {"(?:ab?)*?c", "ababc aac", 2}}) {
    CAPTURE(pattern);
    REQUIRE(counted(pattern).find("(?C)") != std::string::npos);
    CHECK(count_matches(pattern, text) == static_cast<std::size_t>(matches));
  }
}

TEST_CASE("a text may become sixteen times as large", "[tokens]") {
  PlainJson tokenizer = character_tokenizer({"a", "b"});
  const std::string text(100'000, 'a');
  tokenizer["pre_tokenizer"] = splitting("b");
  tokenizer["normalizer"] = replacing("a", std::string(15, 'b'));
  CHECK(ids_of(tokenizer, text) == Ids(1'500'000, 1));
  tokenizer["normalizer"] = replacing("a", std::string(17, 'b'));
  CHECK_THAT(refusal_of([&] { ids_of(tokenizer, text); }),
             is_bad_input("tokenizer.json", "100000 bytes of text into more than 1600000"));
}

TEST_CASE("added tokens that take white space do not count it again and again", "[tokens]") {
  PlainJson tokenizer = character_tokenizer({"a", " "});
  const std::string text = "a" + std::string(1'000'000, ' ');
  for (const char* side : {"lstrip", "rstrip"}) {
    tokenizer["added_tokens"] =
        nlohmann::json::array({added_token({{"content", " "}, {"id", 1}, {side, true}})});
    CHECK(ids_of(tokenizer, text).size() == 1'000'001);  // as the reference: one for each space
  }
}

TEST_CASE("rules that change many added tokens are counted when they are read", "[tokens]") {
  PlainJson tokenizer = character_tokenizer({"a"});
  PlainJson grows = PlainJson::array();
  for (int i = 0; i < 16; ++i) {
    grows.push_back(replacing(".", "aaaa"));
    grows.push_back(replacing("aaaa", "b"));
  }
  tokenizer["normalizer"] = {{"type", "Sequence"}, {"normalizers", grows}};
  for (int i = 0; i < 60'000; ++i) {
    tokenizer["added_tokens"].push_back(
        added_token({{"content", std::to_string(i) + std::string(500, 'a')},
                     {"id", 1 + i},
                     {"normalized", true}}));
  }
  {  // all of them would take minutes
    const std::atomic<bool> stop{true};
    const Work::Watch watch(stop);
    CHECK(refusal_of([&] { opened(tokenizer); }).kind() == ErrorKind::kInterrupted);
  }
  tokenizer["normalizer"] = replacing("a", std::string(18, 'b'));
  CHECK_THAT(refusal_of([&] { opened(tokenizer); }), is_bad_input("added token"));
}

TEST_CASE("Unigram's way through a run of one character is timed", "[tokens]") {
  PlainJson pieces = PlainJson::array({PlainJson::array({"<unk>", 0.0})});
  for (std::size_t length = 1; length <= 4096; ++length) {
    pieces.push_back(
        PlainJson::array({std::string(length, 'a'), -1.0 * static_cast<double>(length * length)}));
  }
  PlainJson tokenizer{{"model", {{"type", "Unigram"}, {"unk_id", 0}, {"vocab", pieces}}}};
  const auto read = opened(tokenizer);
  Ids ids;
  read->encode(std::string(2000, 'a'), true, ids);
  CHECK(ids == Ids(2000, 1));  // many short pieces cost less than a long one
  const std::atomic<bool> stop{true};
  const Work::Watch watch(stop);
  CHECK(refusal_of([&] { read->encode(std::string(1U << 20, 'a'), true, ids); }).kind() ==
        ErrorKind::kInterrupted);
}

TEST_CASE("many small documents have no more time than one large one", "[tokens]") {
  const auto run = [](std::size_t bytes) {
    Work& work = Work::of_thread();
    const auto until = processor_time() + std::chrono::milliseconds(30);
    work.begin("test", bytes);
    while (processor_time() < until) {
      work.step(1U << 16, "rule");
    }
  };
  Work::of_thread().begin("test", 0, std::chrono::milliseconds(100));
  CHECK_THAT(refusal_of([&] {
               for (int i = 0; i < 10; ++i) {
                 run(100);
               }
             }),
             is_bad_input("takes longer", "rule"));
  Work::of_thread().begin("test", 0, std::chrono::milliseconds(100));
  for (int i = 0; i < 10; ++i) {
    run(1U << 20);
  }
  Work::of_thread().begin("test", 0);
}

}  // namespace regroup
