// Tokenizers: bytes, and SentencePiece models with hand-computed ids.
#include "tokens/tokenizer.h"

#include <catch2/catch_test_macros.hpp>

#include "tests/file_tree.h"
#include "tests/refusal.h"
#include "tests/temporary_directory.h"
#include "tests/tokens/sentencepiece_builder.h"

namespace regroup {
namespace {

using Ids = std::vector<std::uint32_t>;

Ids ids_of(const Tokenizer& tokenizer, std::string_view text, bool begins_document = true) {
  Ids ids;
  tokenizer.encode(text, begins_document, ids);
  return ids;
}

}  // namespace

TEST_CASE("byte tokens are the bytes themselves", "[tokens]") {
  const auto tokenizer = open_tokenizer("bytes");
  CHECK(tokenizer->vocabulary() == 256);
  CHECK_FALSE(tokenizer->reads_utf8());
  CHECK(ids_of(*tokenizer, std::string_view("a\0\xff", 3)) == Ids{97, 0, 255});
  CHECK_FALSE(tokenizer->ends().add_bos);
  CHECK_FALSE(tokenizer->ends().eos.has_value());
}

TEST_CASE("a directory without a tokenizer is refused with a hint", "[tokens]") {
  const TemporaryDirectory directory;
  CHECK_THAT(refusal_of([&] { open_tokenizer(directory.path()); }),
             is_bad_input("has no tokenizer (tokenizer.json, ", "--tokenizer names one"));
}

#if REGROUP_WITH_TOKENIZER_JSON

namespace {

// "a" 0, "b" 1 and the special "<s>" 2, "</s>" 3.
constexpr std::string_view kTokenizerJson =
    R"({"added_tokens":[)"
    R"({"id":2,"content":"<s>","special":true,"normalized":false,"single_word":false,"lstrip":false,"rstrip":false},)"
    R"({"id":3,"content":"</s>","special":true,"normalized":false,"single_word":false,"lstrip":false,"rstrip":false}],)"
    R"("model":{"type":"BPE","vocab":{"a":0,"b":1},"merges":[]}})";

}  // namespace

TEST_CASE("a directory's tokenizer.json takes precedence and is named", "[tokens]") {
  const TemporaryDirectory directory;
  put_file(directory / "tokenizer.json", kTokenizerJson);
  put_file(directory / "tokenizer.model", "not looked at");
  const auto tokenizer = open_tokenizer(directory.path());
  CHECK(tokenizer->file() == directory.path() / "tokenizer.json");
  CHECK(tokenizer->vocabulary() == 4);
  CHECK(ids_of(*tokenizer, "abba") == Ids{0, 1, 1, 0});
  put_file(directory / "tokenizer.json", "{}");
  CHECK_THAT(refusal_of([&] { open_tokenizer(directory.path()); }),
             is_bad_input("tokenizer.json", "model is missing"));
  put_file(directory / "tokenizer.json", kTokenizerJson);
  CHECK_FALSE(open_tokenizer(directory.path())->rows());
  put_file(directory / "config.json", R"({"vocab_size": 3})");
  CHECK(open_tokenizer(directory.path())->rows() == 3);
  CHECK(open_tokenizer(directory.path())->vocabulary() == 4);
}

TEST_CASE("the configs next to a tokenizer.json name BOS and EOS", "[tokens]") {
  const TemporaryDirectory directory;
  put_file(directory / "tokenizer.json", kTokenizerJson);
  const auto ends = [&](std::string_view config, std::string_view tokenizer_config) {
    put_file(directory / "config.json", config);
    put_file(directory / "tokenizer_config.json", tokenizer_config);
    return open_tokenizer(directory.path())->ends();
  };
  const DocumentEnds nothing = ends("{}", "{}");
  CHECK_FALSE(nothing.add_bos);
  CHECK_FALSE(nothing.add_eos);
  const DocumentEnds by_default =
      ends("{}", R"({"bos_token": "<s>", "eos_token": {"content": "</s>"}})");
  CHECK(by_default.bos == 2);
  CHECK_FALSE(by_default.add_bos);  // documents need a separator, not two
  CHECK(by_default.eos == 3);
  CHECK(by_default.add_eos);
  const DocumentEnds set =
      ends(R"({"bos_token_id": 2, "eos_token_id": [3, 0]})",
           R"({"add_bos_token": true, "add_eos_token": false, "eos_token": "not a token"})");
  CHECK(set.add_bos);
  CHECK_FALSE(set.add_eos);
  CHECK(set.eos == 3);
}

TEST_CASE("a tokenizer.json given by its path is what it is in its directory", "[tokens]") {
  const TemporaryDirectory directory;
  put_file(directory / "tokenizer.json", kTokenizerJson);
  put_file(directory / "tokenizer_config.json",
           R"({"bos_token": "<s>", "eos_token": "</s>", "add_bos_token": true,
               "added_tokens_decoder": {"4": {"content": "<tool>", "special": false},
                                        "3": {"content": "</s>", "special": true}}})");
  put_file(directory / "other.json", kTokenizerJson);
  for (const auto& path : {directory.path(), directory.path() / "tokenizer.json"}) {
    const auto tokenizer = open_tokenizer(path);
    CHECK(tokenizer->ends().add_bos);
    CHECK(tokenizer->ends().eos == 3);
    CHECK(tokenizer->ends().add_eos);
    CHECK(tokenizer->vocabulary() == 5);
    CHECK(ids_of(*tokenizer, "a<tool>b") == Ids{0, 4, 1});
  }
  CHECK_FALSE(open_tokenizer(directory / "other.json")->ends().add_eos);  // stands alone
  put_file(directory / "config.json", R"({"vocab_size": 4})");
  CHECK(open_tokenizer(directory / "tokenizer.json")->rows() == 4);
}

#else

TEST_CASE("a build without PCRE2 and utf8proc reports it", "[tokens]") {
  const TemporaryDirectory directory;
  put_file(directory / "tokenizer.json", "{}");
  CHECK_THAT(refusal_of([&] { open_tokenizer(directory.path()); }),
             is_wrong_usage("without PCRE2", "--tokenizer bytes"));
}

#endif

#if REGROUP_WITH_SENTENCEPIECE

namespace {

// 259 "▁", 260 "a", 261 "b", 262 "c", 263 "ab", 264 "▁ab", 265 "abc". Earlier merges have priority.
const std::vector<std::string> kPieces{"\u2581", "a", "b", "c", "ab", "\u2581ab", "abc"};

std::unique_ptr<Tokenizer> open_built(const TemporaryDirectory& directory,
                                      const BuiltSentencePiece& model) {
  put_file(directory / "tokenizer.model", model.bytes());
  return open_tokenizer(directory / "tokenizer.model");
}

}  // namespace

TEST_CASE("a SentencePiece BPE gives the ids that follow from its merges", "[tokens]") {
  const TemporaryDirectory directory;
  const auto tokenizer = open_built(directory, llama_like(kPieces));
  CHECK(tokenizer->vocabulary() == 266);
  CHECK(tokenizer->reads_utf8());
  CHECK(ids_of(*tokenizer, "abc") == Ids{264, 262});  // "▁ab" has priority over "abc"
  CHECK(ids_of(*tokenizer, "ab  ab") == Ids{264, 259, 264});
  CHECK(ids_of(*tokenizer, "ab\nab") == Ids{264, 3 + 10, 263});
  CHECK(ids_of(*tokenizer, "\u00e4") == Ids{259, 3 + 0xc3, 3 + 0xa4});
  CHECK(ids_of(*tokenizer, "</s>") == Ids{259, 3 + '<', 3 + '/', 3 + 's', 3 + '>'});
  CHECK(ids_of(*tokenizer, "").empty());
  CHECK(tokenizer->ends().bos == 1);
  CHECK(tokenizer->ends().eos == 2);
  CHECK(tokenizer->ends().add_bos);
  CHECK(tokenizer->ends().add_eos);
}

TEST_CASE("encoding a document in parts gives the ids of the whole", "[tokens]") {
  const TemporaryDirectory directory;
  BuiltSentencePiece model = llama_like(kPieces);
  for (const auto& [prefix, removes] : {std::pair{true, false}, std::pair{true, true},
                                        std::pair{false, false}, std::pair{false, true}}) {
    model.adds_space_prefix = prefix;
    model.removes_extra_spaces = removes;
    const auto tokenizer = open_built(directory, model);
    const std::string text = "abc ab  ab\nab ab";
    const Ids whole = ids_of(*tokenizer, text);
    for (const std::size_t cut : {3U, 6U, 13U}) {
      Ids ids = ids_of(*tokenizer, text.substr(0, cut));
      tokenizer->encode(text.substr(cut), false, ids);
      CHECK(ids == whole);
    }
    // Control: encoding the parts as separate documents gives other ids in some cases.
    Ids apart = ids_of(*tokenizer, text.substr(0, 3));
    tokenizer->encode(text.substr(3), true, apart);
    CHECK((apart == whole) == (prefix == removes));
  }
}

TEST_CASE("BOS and EOS follow from the tokenizer and the configs", "[tokens]") {
  const TemporaryDirectory directory;
  BuiltSentencePiece model = llama_like(kPieces);
  put_file(directory / "tokenizer.model", model.bytes());
  put_file(directory / "config.json", R"({"vocab_size": 266, "eos_token_id": 7})");
  put_file(directory / "tokenizer_config.json",
           R"({"add_bos_token": true, "add_eos_token": false})");
  const DocumentEnds ends = open_tokenizer(directory.path())->ends();
  CHECK(ends.add_bos);
  CHECK_FALSE(ends.add_eos);
  CHECK(ends.eos == 2);  // the tokenizer's own takes precedence
  // A model without these pieces uses the config's EOS and adds no BOS.
  model.pieces[1].text = "other";
  model.pieces[2].text = "another";
  put_file(directory / "tokenizer.model", model.bytes());
  put_file(directory / "tokenizer_config.json",
           R"({"add_bos_token": true, "add_eos_token": true})");
  const DocumentEnds others = open_tokenizer(directory.path())->ends();
  CHECK_FALSE(others.add_bos);
  CHECK(others.add_eos);
  CHECK(others.eos == 7);
}

#if REGROUP_WITH_TOKENIZER_JSON

TEST_CASE("tokens added to a SentencePiece model are found, and one of them ends documents",
          "[tokens]") {
  const TemporaryDirectory directory;
  const BuiltSentencePiece model = llama_like(kPieces);  // 266 pieces
  put_file(directory / "tokenizer.model", model.bytes());
  put_file(directory / "added_tokens.json",
           R"({"<|im_start|>": 266, "<|im_end|>": 267, "<x>": 268})");
  put_file(directory / "tokenizer_config.json", R"({"eos_token": "<|im_end|>"})");
  const auto tokenizer = open_tokenizer(directory / "tokenizer.model");
  CHECK(tokenizer->vocabulary() == 269);
  CHECK(tokenizer->ends().eos == 267);
  CHECK(tokenizer->ends().bos == 1);
  // Only the first section begins like a document: with "\u2581ab".
  CHECK(ids_of(*tokenizer, "ab<|im_start|>ab<x>") == Ids{264, 266, 263, 268});
  CHECK(ids_of(*tokenizer, "<|im_start|>ab") == Ids{266, 263});
  // Named as a special token: text that spells it is text.
  CHECK(ids_of(*tokenizer, "ab<|im_end|>").size() == 11);
  CHECK(tokenizer->id_of("<|im_end|>") == 267);
  CHECK(tokenizer->id_of("ab") == 263);
  put_file(directory / "tokenizer_config.json", R"({"eos_token": "<|im_end|>", "legacy": true,
      "added_tokens_decoder": {"2": {"content": "</s>", "special": true},
                               "267": {"content": "<|im_end|>", "special": false, "rstrip": true}}})");
  CHECK(ids_of(*open_tokenizer(directory.path()), "ab<|im_end|>  ab") == Ids{264, 267, 264});
}

TEST_CASE("contradictions between a tokenizer's files are refused", "[tokens]") {
  const TemporaryDirectory directory;
  put_file(directory / "tokenizer.model", llama_like(kPieces).bytes());
  put_file(directory / "tokenizer_config.json", R"({"eos_token": "<end>"})");
  CHECK_THAT(refusal_of([&] { open_tokenizer(directory.path()); }),
             is_bad_input("the eos token is <end>, which the tokenizer does not have"));
  put_file(directory / "config.json", R"({"vocab_size": 266, "eos_token_id": 7})");
  CHECK(open_tokenizer(directory.path())->ends().eos == 7);
  put_file(directory / "added_tokens.json", R"({"<end>": 267})");
  put_file(directory / "tokenizer_config.json",
           R"({"added_tokens_decoder": {"266": {"content": "<end>"}}})");
  CHECK_THAT(refusal_of([&] { open_tokenizer(directory.path()); }),
             is_bad_input("added_tokens.json", "<end>", "267", "266"));
}

#endif

TEST_CASE("unusable SentencePiece models are refused", "[tokens]") {
  const TemporaryDirectory directory;
  const auto path = directory / "tokenizer.model";
  const auto refusal = [&](const std::string& bytes) {
    put_file(path, bytes);
    return refusal_of([&] { open_tokenizer(path); });
  };
  const BuiltSentencePiece good = llama_like(kPieces);
  CHECK_THAT(refusal(""), is_bad_input("tokenizer.model", "no pieces"));
  CHECK_THAT(refusal("version https://git-lfs.github.com/spec/v1"),
             is_bad_input("tokenizer.model", "git lfs pull"));
  CHECK_THAT(refusal(good.bytes().substr(0, 100)), is_bad_input("tokenizer.model", "cut short"));
  BuiltSentencePiece twice = good;
  twice.pieces.back().text = "a";
  CHECK_THAT(refusal(twice.bytes()), is_bad_input("tokenizer.model", "SentencePiece"));
  BuiltSentencePiece no_unknown = good;
  no_unknown.pieces[0].type = 1;
  CHECK_THAT(refusal(no_unknown.bytes()), is_bad_input("tokenizer.model", "SentencePiece"));
  CHECK_THAT(refusal_of([&] { open_tokenizer(directory / "none.model"); }), is_bad_input("none"));
  put_file(path, good.bytes());
  put_file(directory / "tokenizer_config.json",
           R"({"tokenizer_class": "XLMRobertaTokenizerFast"})");
  CHECK_THAT(refusal_of([&] { open_tokenizer(directory.path()); }),
             is_bad_input("XLMRobertaTokenizerFast", "renumbers"));
}

#else

TEST_CASE("a build without SentencePiece reports it", "[tokens]") {
  const TemporaryDirectory directory;
  put_file(directory / "tokenizer.model", "");
  CHECK_THAT(refusal_of([&] { open_tokenizer(directory / "tokenizer.model"); }),
             is_wrong_usage("without SentencePiece", "--tokenizer bytes"));
}

#endif

}  // namespace regroup
