// Normalisation rules of SentencePiece models and their limits.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>

#include "formats/vocabulary/sentencepiece.h"
#include "tests/charsmap_builder.h"
#include "tests/refusal.h"

namespace regroup {
namespace {

Error refusal_of_map(const std::string& charsmap) {
  return refusal_of([&] { check_charsmap(charsmap, "tokenizer.model"); });
}

}  // namespace

TEST_CASE("a map whose rules stay within it is accepted", "[formats]") {
  CHECK_NOTHROW(check_charsmap("", "m"));
  CHECK_NOTHROW(check_charsmap(BuiltCharsmap().bytes(), "m"));
  BuiltCharsmap map;
  map.add_rule("a", 0);
  map.add_rule("ab", 2);
  map.add_rule("b", 2);
  map.replacements = std::string("x\0y\0", 4);
  CHECK_NOTHROW(check_charsmap(map.bytes(), "m"));
}

TEST_CASE("a truncated map is refused", "[formats]") {
  BuiltCharsmap map;
  map.add_rule("a", 0);
  const std::string whole = map.bytes();
  for (const std::size_t length : {1U, 4U, 5U, 100U, 1027U}) {
    CAPTURE(length);
    CHECK_THAT(refusal_of_map(whole.substr(0, length)),
               is_bad_input("tokenizer.model", "precompiled_charsmap"));
  }
  map.trie_bytes = map.bytes().size() - 1;  // the library itself accepts this
  CHECK_THAT(refusal_of_map(map.bytes()), is_bad_input("a trie of"));
  map.trie_bytes = 0;
  CHECK_THAT(refusal_of_map(map.bytes()), is_bad_input("its trie is empty"));
  CHECK_THAT(refusal_of_map(std::string((4U << 20) + 1, '\0')), is_bad_input("at most 4194304"));
}

TEST_CASE("a trie with offsets beyond its array is refused", "[formats]") {
  BuiltCharsmap map;
  map.units[0] = BuiltCharsmap::child(0, 512, false);  // beyond its two blocks
  CHECK_THAT(refusal_of_map(map.bytes()), is_bad_input("points outside its array"));
  map.units[0] = BuiltCharsmap::child(0, 256, false);
  CHECK_NOTHROW(check_charsmap(map.bytes(), "m"));
  map.units[256 + 'a'] = BuiltCharsmap::child('a', 1U << 20, false);
  CHECK_THAT(refusal_of_map(map.bytes()), is_bad_input("points outside its array"));
  map.units.resize(511);  // any byte may be looked up in the block
  map.units[256 + 'a'] = BuiltCharsmap::kUnused;
  CHECK_THAT(refusal_of_map(map.bytes()), is_bad_input("points outside its array"));
}

TEST_CASE("a trie with a cycle is refused", "[formats]") {
  BuiltCharsmap map;
  map.units[256 + 'a'] = BuiltCharsmap::child('a', 'a', false);  // back to its own node
  CHECK_THAT(refusal_of_map(map.bytes()), is_bad_input("has a cycle"));
}

TEST_CASE("replacements beyond their text and endless ones are refused", "[formats]") {
  BuiltCharsmap map;
  map.add_rule("a", 2);
  map.replacements = std::string("x\0", 2);
  CHECK_THAT(refusal_of_map(map.bytes()), is_bad_input("outside the replacement text"));
  map.replacements = "xyz";
  CHECK_THAT(refusal_of_map(map.bytes()), is_bad_input("does not end"));
  map.replacements = std::string(2 + 255, 'x') + std::string(1, '\0');
  CHECK_NOTHROW(check_charsmap(map.bytes(), "m"));
  map.replacements = std::string(2 + 256, 'x') + std::string(1, '\0');
  CHECK_THAT(refusal_of_map(map.bytes()), is_bad_input("within 255 bytes"));
}

TEST_CASE("more than 31 rules with the same beginning are refused", "[formats]") {
  BuiltCharsmap map;
  map.replacements = std::string("x\0", 2);
  for (std::size_t length = 1; length <= 31; ++length) {
    map.add_rule(std::string(length, 'a'), 0);
  }
  CHECK_NOTHROW(check_charsmap(map.bytes(), "m"));
  map.add_rule(std::string(32, 'a'), 0);
  CHECK_THAT(refusal_of_map(map.bytes()), is_bad_input("more than 31"));
}

TEST_CASE("maps are checked in both specs of a model", "[formats]") {
  const auto field = [](char number, const std::string& bytes) {
    return std::string(1, static_cast<char>(number << 3 | 2)) + static_cast<char>(bytes.size()) +
           bytes;
  };
  const std::string pieces = field(1, field(1, "a"));
  const std::string bad = field(2, "bad");
  CHECK_NOTHROW(parse_sentencepiece_model(pieces + field(3, field(2, "")), "m"));
  for (const char spec : {'\3', '\5'}) {  // normalizer_spec, denormalizer_spec
    for (const std::string& model :
         {pieces + field(spec, bad), pieces + field(spec, bad) + field(spec, field(2, "")),
          pieces + field(spec, bad + field(2, ""))}) {
      CHECK_THAT(refusal_of([&] { parse_sentencepiece_model(model, "m"); }),
                 is_bad_input("m: precompiled_charsmap"));
    }
  }
}

}  // namespace regroup
