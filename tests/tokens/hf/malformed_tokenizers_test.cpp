// tokenizer.json files that are malformed, not supported, or made to take too long.
#include <catch2/catch_test_macros.hpp>

#include "tests/refusal.h"
#include "tests/tokens/hf/tokenizer_parts.h"

namespace regroup {
namespace {

using PlainJson = nlohmann::json;

Error refusal(const PlainJson& tokenizer, std::string_view text = "") {
  return refusal_of([&] {
    std::vector<std::uint32_t> ids;
    opened(tokenizer)->encode(text, true, ids);
  });
}

// The refusal of a good tokenizer with this member, or this member of its model.
Error refusal_with(const std::string& key, const PlainJson& value) {
  PlainJson tokenizer = character_tokenizer({"a", "b", "ab"});
  tokenizer[key] = value;
  return refusal(tokenizer);
}

Error refusal_with_model(const std::string& key, const PlainJson& value) {
  PlainJson tokenizer = character_tokenizer({"a", "b", "ab"});
  tokenizer["model"][key] = value;
  return refusal(tokenizer);
}

// With one piece.
PlainJson unigram_of(const PlainJson& text, const PlainJson& score) {
  const PlainJson piece = PlainJson::array({text, score});
  return {{"type", "Unigram"}, {"unk_id", nullptr}, {"vocab", PlainJson::array({piece})}};
}

}  // namespace

TEST_CASE("the parts of a tokenizer that are not supported are named", "[tokens]") {
  CHECK_THAT(refusal_with("x", 1), is_bad_input("tokenizer.json: x is not supported"));
  CHECK_THAT(refusal_with("normalizer", {{"type", "Xyz"}}), is_bad_input("normalizer.type", "Xyz"));
  CHECK_THAT(refusal_with("normalizer", 3), is_bad_input("normalizer is 3", "object"));
  CHECK_THAT(refusal_with("pre_tokenizer", {{"type", "UnicodeScripts"}}),
             is_bad_input("pre_tokenizer.type", "UnicodeScripts"));
  CHECK_THAT(
      refusal_with("pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", {{{"type", 1}}}}}),
      is_bad_input("pre_tokenizer.pretokenizers[0].type is 1"));
  CHECK_THAT(refusal_with("post_processor", {{"type", "Xyz"}}),
             is_bad_input("post_processor.type"));
  CHECK_THAT(refusal_with("model", PlainJson()), is_bad_input("model is missing"));
  CHECK_THAT(refusal_with_model("type", "Markov"), is_bad_input("model.type", "Markov"));
  CHECK_THAT(refusal_with_model("dropout", 0.1), is_bad_input("dropout", "0.1"));
  CHECK_THAT(refusal_with_model("alpha", 1), is_bad_input("model.alpha is not supported"));
  CHECK_THAT(
      refusal_with("normalizer", {{"type", "Strip"}, {"strip_left", 1}, {"strip_right", true}}),
      is_bad_input("normalizer.strip_left is 1"));
}

TEST_CASE("a decoder that looks for an empty text is refused", "[tokens]") {
  for (const PlainJson& decoder :
       {PlainJson{{"type", "Metaspace"}, {"replacement", ""}},
        PlainJson{{"type", "BPEDecoder"}, {"suffix", ""}},
        PlainJson{{"type", "Replace"}, {"pattern", {{"String", ""}}}, {"content", "a"}},
        PlainJson{{"type", "Strip"}, {"content", ""}, {"start", 4294967295}, {"stop", 0}}}) {
    CAPTURE(decoder.dump());
    PlainJson tokenizer = character_tokenizer({"a", "b", "ab"});
    tokenizer["decoder"] = decoder;
    const std::vector<std::uint32_t> ids{0, 1};
    CHECK_THAT(refusal_of([&] { opened(tokenizer)->decode(ids); }), is_bad_input("empty"));
  }
}

TEST_CASE("malformed vocabularies and merges are refused", "[tokens]") {
  CHECK_THAT(refusal_with_model("vocab", PlainJson::object()), is_bad_input("model.vocab"));
  CHECK_THAT(refusal_with_model("vocab", {{"a", -1}}), is_bad_input("model.vocab.a is -1"));
  CHECK_THAT(refusal_with_model("vocab", {{"a", 1ULL << 31}}), is_bad_input("below 2^31"));
  CHECK_THAT(refusal_with_model("merges", PlainJson()), is_bad_input("model.merges"));
  CHECK_THAT(refusal_with_model("merges", {"a"}), is_bad_input("merges[0]", "pair"));
  CHECK_THAT(refusal_with_model("merges", {"a b c"}), is_bad_input("merges[0]", "pair"));
  CHECK_THAT(refusal_with_model("merges", PlainJson::array({PlainJson::array({"a", "c"})})),
             is_bad_input("merges[0] has c"));
  CHECK_THAT(refusal_with_model("merges", {"b a"}), is_bad_input("merges[0] has ba"));
  CHECK_THAT(refusal_with_model("unk_token", "?"), is_bad_input("unk_token"));
  CHECK_THAT(refusal_with("model", unigram_of("a", "x")), is_bad_input("model.vocab[0]"));
  CHECK_THAT(refusal_with("model", unigram_of(std::string(5000, 'a'), -1)),
             is_bad_input("model.vocab[0] has 5000 bytes"));
  PlainJson unigram = unigram_of("a", -1);
  unigram["unk_id"] = 1;
  CHECK_THAT(refusal_with("model", unigram), is_bad_input("unk_id"));
  CHECK_THAT(refusal_with("model", {{"type", "WordPiece"},
                                    {"unk_token", "a"},
                                    {"continuing_subword_prefix", "##"},
                                    {"max_input_chars_per_word", 5000},
                                    {"vocab", {{"a", 0}}}}),
             is_bad_input("max_input_chars_per_word"));
}

TEST_CASE("texts without a token and without one for what is unknown are refused or counted",
          "[tokens]") {
  PlainJson tokenizer = character_tokenizer({"a"});
  const auto reader = opened(tokenizer);
  std::vector<std::uint32_t> ids;
  reader->encode("a\u00e4xa", true, ids);
  CHECK(ids == std::vector<std::uint32_t>{0, 0});
  CHECK(reader->left_out() == 2);
  tokenizer["model"] = unigram_of("a", -1);
  CHECK_THAT(refusal(tokenizer, "ab"), is_bad_input("unk_id"));
}

TEST_CASE("added tokens that could take all time or memory are refused", "[tokens]") {
  PlainJson tokens = PlainJson::array();
  tokens.push_back(added_token({{"content", std::string(2000, 'a')}, {"id", 3}}));
  CHECK_THAT(refusal_with("added_tokens", tokens), is_bad_input("added_tokens[0].content"));
  tokens[0] = added_token({{"content", "x"}, {"id", 3}});
  tokens[1] = tokens[0];
  CHECK_THAT(refusal_with("added_tokens", tokens), is_bad_input("added_tokens[1].content"));
  PlainJson tokenizer = character_tokenizer({"a"});
  tokenizer["normalizer"] = {
      {"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", std::string(200, 'a')}};
  tokenizer["added_tokens"] = nlohmann::json::array(
      {added_token({{"content", std::string(100, 'a')}, {"id", 1}, {"normalized", true}})});
  CHECK_THAT(refusal(tokenizer), is_bad_input("added token", "20000 bytes"));
  tokenizer["added_tokens"] = nlohmann::json::array(
      {added_token({{"content", "\u0301"}, {"id", 1}, {"normalized", true}})});
  tokenizer["normalizer"] = {{"type", "StripAccents"}};
  CHECK_THAT(refusal(tokenizer), is_bad_input("added token", "0 bytes"));
}

TEST_CASE("rules that make a text grow without end are refused", "[tokens]") {
  PlainJson tokenizer = character_tokenizer({"a"});
  const PlainJson grows{
      {"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", std::string(256, 'a')}};
  tokenizer["normalizer"] = {{"type", "Sequence"}, {"normalizers", {grows, grows, grows, grows}}};
  CHECK_THAT(refusal(tokenizer, "aaaaaaaa"),
             is_bad_input("tokenizer.json", "4096 bytes of text into more than 65536"));
  tokenizer["normalizer"]["normalizers"] = PlainJson(40, grows);
  CHECK_THAT(refusal(tokenizer), is_bad_input("32 normalizers"));
}

TEST_CASE("a template may add one token at each end of a text", "[tokens]") {
  const PlainJson text{{"Sequence", {{"id", "A"}, {"type_id", 0}}}};
  const PlainJson special{{"SpecialToken", {{"id", "a"}, {"type_id", 0}}}};
  const auto refusal_of_template = [&](const PlainJson& single) {
    return refusal_with(
        "post_processor",
        {{"type", "TemplateProcessing"},
         {"single", single},
         {"pair", PlainJson::array()},
         {"special_tokens", {{"a", {{"id", "a"}, {"ids", {0}}, {"tokens", {"a"}}}}}}});
  };
  CHECK_THAT(refusal_of_template({special, special, text}), is_bad_input("at most one token"));
  CHECK_THAT(refusal_of_template({text, text}), is_bad_input("once"));
  CHECK_THAT(refusal_of_template(PlainJson::array({special})), is_bad_input("once"));
  CHECK_THAT(refusal_of_template({{{"SpecialToken", {{"id", "b"}}}}, text}),
             is_bad_input("special_tokens.b"));
  CHECK(refusal_of_template({special, text, special}).kind() == ErrorKind::kDifference);  // none
}

TEST_CASE("a precompiled_charsmap is checked before it is used", "[tokens]") {
  for (const std::string encoded : {"", "AAA", "A===", "*AAA", "AAAA", "AAAAAAAA", "/////w=="}) {
    CAPTURE(encoded);
    CHECK_THAT(
        refusal_with("normalizer", {{"type", "Precompiled"}, {"precompiled_charsmap", encoded}}),
        is_bad_input("precompiled_charsmap"));
  }
}

}  // namespace regroup
