// Hand-made tokenizers of each kind, and files that are not tokenizers.
#include "formats/vocabulary/vocabulary.h"

#include <bit>
#include <limits>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <fmt/format.h>

#include "formats/base/json.h"
#include "formats/base/printable.h"
#include "formats/vocabulary/sentencepiece.h"
#include "tests/file_tree.h"
#include "tests/refusal.h"
#include "tests/temporary_directory.h"

namespace regroup {
namespace {

namespace fs = std::filesystem;
using Tokens = std::vector<std::string>;
using Types = std::vector<std::int32_t>;

constexpr std::int32_t kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5,
                       kByte = 6;

// A protobuf field of bytes. Lengths are below 16,384 and take one or two bytes.
std::string field(int number, const std::string& bytes) {
  std::string length(1, static_cast<char>(bytes.size()));
  if (bytes.size() >= 128) {
    length = {static_cast<char>(bytes.size() % 128 + 128), static_cast<char>(bytes.size() / 128)};
  }
  return static_cast<char>(number << 3 | 2) + length + bytes;
}

// A field with a small number.
std::string field(int number, int value) {
  return {static_cast<char>(number << 3), static_cast<char>(value)};
}

std::string float_field(int number, float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  std::string bytes{static_cast<char>(number << 3 | 5)};
  for (int shift = 0; shift < 32; shift += 8) {
    bytes += static_cast<char>(bits >> shift);
  }
  return bytes;
}

std::string piece(const std::string& text, float score, int type) {
  return field(1, field(1, text) + float_field(2, score) + field(3, type));
}

// The first pieces of Llama's tokenizer.
std::string tiny_sentencepiece() {
  return piece("<unk>", 0, kUnknown) + piece("<s>", 0, kControl) + piece("</s>", 0, kControl) +
         piece("<0x41>", 0, kByte) + field(1, field(1, "\u2581a") + float_field(2, -1.5F)) +
         piece("\u2581\u2581", -2, kUserDefined) + field(2, field(3, 2));
}

// A small byte-level BPE with the given pre-tokenizer.
Json tiny_bpe(const char* pre_tokenizer = R"({"type": "ByteLevel"})") {
  Json tokenizer = Json::parse(R"({
    "added_tokens": [{"id": 4, "content": "<|end|>", "special": true},
                     {"id": 5, "content": "\u2581tool", "special": false}],
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "\u0120a": 3},
              "merges": ["a b", "\u0120 a"]}})");
  tokenizer["pre_tokenizer"] = Json::parse(pre_tokenizer);
  return tokenizer;
}

Vocabulary vocabulary_of(const std::map<std::string, std::string>& files, std::int64_t rows) {
  const TemporaryDirectory directory;
  for (const auto& [name, bytes] : files) {
    put_file(directory / name, bytes);
  }
  return read_vocabulary(directory.path(), rows);
}

Vocabulary bpe_with(const Json& tokenizer, const std::map<std::string, std::string>& others = {}) {
  std::map<std::string, std::string> files = others;
  files["tokenizer.json"] = tokenizer.dump();
  return vocabulary_of(files, 6);
}

TEST_CASE("SentencePiece pieces become tokens with scores and types and padding", "[formats]") {
  const Vocabulary vocabulary = vocabulary_of({{"tokenizer.model", tiny_sentencepiece()}}, 8);
  CHECK(vocabulary.model == "llama");
  CHECK(vocabulary.pre == "default");
  CHECK(vocabulary.tokens ==
        Tokens{"<unk>", "<s>", "</s>", "<0x41>", "\u2581a", "  ", "[PAD6]", "[PAD7]"});
  CHECK(vocabulary.types ==
        Types{kUnknown, kControl, kControl, kByte, kNormal, kUserDefined, kUnused, kUnused});
  CHECK(vocabulary.scores == std::vector<float>{0, 0, 0, 0, -1.5F, -2, -10000, -10000});
  CHECK(vocabulary.add_space_prefix == true);
  CHECK(vocabulary.merges.empty());
  CHECK(vocabulary.notes.empty());
}

TEST_CASE("a SentencePiece model without a space prefix is read and a unigram model is noted",
          "[formats]") {
  const Vocabulary vocabulary = vocabulary_of(
      {{"tokenizer.model", piece("a", 0, kNormal) + field(2, field(3, 1)) + field(3, field(3, 0))}},
      1);
  CHECK(vocabulary.add_space_prefix == false);
  REQUIRE(vocabulary.notes.size() == 1);
  CHECK(vocabulary.notes[0].find("unigram") != std::string::npos);
}

TEST_CASE("tokens added to a SentencePiece model replace or extend its pieces", "[formats]") {
  const Vocabulary vocabulary =
      vocabulary_of({{"tokenizer.model", tiny_sentencepiece()},
                     {"added_tokens.json", R"({"<extra>": 6})"},
                     {"tokenizer_config.json", R"({"added_tokens_decoder": {
          "0": {"content": "<unk>", "special": true}, "4": {"content": "new", "special": true},
          "7": {"content": "<|im_end|>", "special": false}, "9": {"content": "far"}}})"}},
                    8);
  CHECK(vocabulary.tokens[0] == "<unk>");
  CHECK(vocabulary.types[0] == kUnknown);
  CHECK(vocabulary.scores[0] == 0);
  CHECK(vocabulary.tokens[4] == "new");
  CHECK(vocabulary.types[4] == kControl);
  CHECK(vocabulary.scores[4] == -1000);
  CHECK(vocabulary.tokens[6] == "<extra>");
  CHECK(vocabulary.types[6] == kUserDefined);
  CHECK(vocabulary.types[7] == kUserDefined);  // found in texts, whatever its form
  REQUIRE(vocabulary.notes.size() == 1);
  CHECK(vocabulary.notes[0].find("1 tokens beyond the 8 rows") != std::string::npos);
}

TEST_CASE("byte-level BPE is read with merges and added tokens", "[formats]") {
  const Vocabulary vocabulary = bpe_with(tiny_bpe());
  CHECK(vocabulary.model == "gpt2");
  CHECK(vocabulary.pre == "gpt-2");
  CHECK(vocabulary.tokens == Tokens{"a", "b", "ab", "\u0120a", "<|end|>", " tool"});
  CHECK(vocabulary.types == Types{kNormal, kNormal, kNormal, kNormal, kControl, kUserDefined});
  CHECK(vocabulary.merges == Tokens{"a b", "\u0120 a"});
  CHECK(vocabulary.scores.empty());
  CHECK(vocabulary.notes.empty());
}

TEST_CASE("merges may be pairs and their spaces are encoded", "[formats]") {
  Json tokenizer = tiny_bpe();
  tokenizer["model"]["merges"] = Json::parse(R"([["a", "b"], ["a b", "c"]])");
  CHECK(bpe_with(tokenizer).merges == Tokens{"a b", "a\u0120b c"});
}

TEST_CASE("pre-tokenizers get llama.cpp's names", "[formats]") {
  const auto split = [](const std::string& pattern) {
    return Json{{"type", "Sequence"},
                {"pretokenizers",
                 {{{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}},
                  {{"type", "ByteLevel"}, {"use_regex", false}}}}}
        .dump();
  };
  const auto name = [](const std::string& pre) { return bpe_with(tiny_bpe(pre.c_str())).pre; };
  const auto words = [](const std::string& digits) {
    return R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|)" + digits +
           R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  };
  CHECK(name(split(words(R"(\p{N}{1,3})"))) == "dbrx");
  Json llama = tiny_bpe(split(words(R"(\p{N}{1,3})")).c_str());
  llama["model"]["ignore_merges"] = true;
  CHECK(bpe_with(llama).pre == "llama-bpe");
  Json composed = tiny_bpe(R"({"type": "ByteLevel", "use_regex": true})");
  composed["normalizer"] = {{"type", "NFC"}};
  CHECK(bpe_with(composed).pre == "olmo");
  CHECK(name(split(words(R"(\p{N})"))) == "qwen2");
  CHECK(name(split(" ?[^(\\s|[.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c)])+")) == "bloom");
  CHECK(name(R"({"type": "Sequence", "pretokenizers": [{"type": "Digits"},
                 {"type": "ByteLevel"}]})") == "starcoder");
  CHECK(name(R"({"type": "Sequence", "pretokenizers": [{"type": "Punctuation"},
                 {"type": "ByteLevel"}, {"type": "Digits"}, {"type": "Split"}]})") == "falcon");
}

TEST_CASE("an unknown pre-tokenizer is called default with a note", "[formats]") {
  for (const char* pre : {"null", R"({"type": "Whitespace"})", R"({"type": "Sequence"})",
                          R"({"type": "Sequence", "pretokenizers": [{"type": "Split",
                              "pattern": {"Regex": "x"}}, {"type": "ByteLevel"}]})"}) {
    CAPTURE(pre);
    const Vocabulary vocabulary = bpe_with(tiny_bpe(pre));
    CHECK(vocabulary.pre == "default");
    CHECK(vocabulary.notes.size() == 1);
  }
}

TEST_CASE("a BPE with byte fallback becomes a SentencePiece model scored by its merges",
          "[formats]") {
  Json tokenizer = tiny_bpe("null");
  tokenizer["model"] = Json::parse(R"({"type": "BPE", "byte_fallback": true, "unk_token": "<unk>",
    "vocab": {"<unk>": 0, "<0x0A>": 1, "a": 2, "b": 3}, "merges": ["a b"]})");
  tokenizer["model"]["vocab"]["ab"] = 4;
  tokenizer["added_tokens"] = Json::parse(R"([{"id": 5, "content": "</s>", "special": true}])");
  const Vocabulary vocabulary = bpe_with(tokenizer);
  CHECK(vocabulary.model == "llama");
  CHECK(vocabulary.types == Types{kUnknown, kByte, kNormal, kNormal, kNormal, kControl});
  CHECK(vocabulary.scores == std::vector<float>{0, 0, -1, -1, 0, -1000});
  CHECK(vocabulary.merges.empty());
}

TEST_CASE("GPT-2's own files are read if there is no tokenizer.json", "[formats]") {
  const Vocabulary vocabulary =
      vocabulary_of({{"vocab.json", R"({"a": 0, "b": 1, "ab": 2, "<|endoftext|>": 3})"},
                     {"merges.txt", "#version: 0.2\na b\r\n\n# b"},
                     {"special_tokens_map.json", R"({"eos_token": "<|endoftext|>"})"}},
                    4);
  CHECK(vocabulary.model == "gpt2");
  CHECK(vocabulary.pre == "gpt-2");
  CHECK(vocabulary.merges == Tokens{"a b", "# b"});
  CHECK(vocabulary.types == Types{kNormal, kNormal, kNormal, kControl});
  CHECK(vocabulary.special_ids.at("eos") == 3);
}

TEST_CASE("Llama 3's ranks become a vocabulary with merges", "[formats]") {
  std::string lines;
  for (const char* token : {"a", "b", "ab"}) {
    lines += fmt::format("{} {}\n", base64_of(token), lines.size() / 7);
  }
  const Vocabulary vocabulary = vocabulary_of({{"tokenizer.model", lines}}, 5);
  CHECK(vocabulary.model == "gpt2");
  CHECK(vocabulary.pre == "llama-bpe");
  CHECK(vocabulary.tokens == Tokens{"a", "b", "ab", "<|begin_of_text|>", "<|end_of_text|>"});
  CHECK(vocabulary.merges == Tokens{"a b"});
  CHECK(vocabulary.types == Types{kNormal, kNormal, kNormal, kControl, kControl});
  CHECK(vocabulary.special_ids == std::map<std::string, std::uint32_t>{{"bos", 3}, {"eos", 4}});
  CHECK(vocabulary.add_bos == true);
  CHECK(vocabulary.add_eos == std::nullopt);
}

TEST_CASE("special tokens are found by text first and then by the configs' ids", "[formats]") {
  const Vocabulary vocabulary = bpe_with(
      tiny_bpe(), {{"tokenizer_config.json",
                    R"({"eos_token": {"content": "<|end|>"}, "unk_token": "nowhere"})"},
                   {"special_tokens_map.json", R"({"pad_token": "b", "eos_token": "a"})"},
                   {"config.json", R"({"eos_token_id": 0, "bos_token_id": [1, 2]})"},
                   {"generation_config.json", R"({"unk_token_id": 99, "bos_token_id": 3})"}});
  CHECK(vocabulary.special_ids ==
        std::map<std::string, std::uint32_t>{{"bos", 1}, {"eos", 4}, {"pad", 1}});
  CHECK(vocabulary.types[1] == kControl);
}

TEST_CASE("add_bos and add_eos are read from tokenizer.json and the config", "[formats]") {
  const std::string config =
      R"({"add_bos_token": false, "add_eos_token": true, "bos_token": "<|end|>"})";
  const Vocabulary flags = bpe_with(tiny_bpe(), {{"tokenizer_config.json", config}});
  CHECK(flags.add_bos == false);
  CHECK(flags.add_eos == true);
  Json tokenizer = tiny_bpe();
  tokenizer["post_processor"] = Json::parse(R"({"type": "Sequence", "processors": [
    {"type": "ByteLevel"}, {"type": "TemplateProcessing", "single": [
      {"SpecialToken": {"id": "<|end|>"}}, {"Sequence": {"id": "A"}}]}]})");
  const Vocabulary outweighed = bpe_with(tokenizer, {{"tokenizer_config.json", config}});
  CHECK(outweighed.add_bos == true);
  CHECK(outweighed.add_eos == true);
  CHECK_FALSE(vocabulary_of({{"tokenizer.model", tiny_sentencepiece()}}, 8).add_bos.has_value());
}

// transformers adds none either, whatever its class assumes of a tokenizer.model.
TEST_CASE("a tokenizer.json without a BOS in its post-processor adds none in a GGUF file",
          "[formats]") {
  Json tokenizer = tiny_bpe();
  CHECK(bpe_with(tokenizer).add_bos == false);
  CHECK_FALSE(bpe_with(tokenizer).add_eos.has_value());
  tokenizer["model"]["byte_fallback"] = true;  // readers assume a BOS for such a vocabulary
  tokenizer["post_processor"] = Json::parse(R"({"type": "TemplateProcessing", "single": [
    {"Sequence": {"id": "A"}}]})");
  GgufMetadata metadata;
  set_vocabulary(metadata, bpe_with(tokenizer));
  CHECK(metadata.text("tokenizer.ggml.model") == "llama");
  CHECK(metadata.flag("tokenizer.ggml.add_bos_token") == false);
}

TEST_CASE("added tokens with rules of what is around them are noted", "[formats]") {
  for (const char* rule : {"lstrip", "rstrip", "single_word"}) {
    Json tokenizer = tiny_bpe();
    tokenizer["added_tokens"][0][rule] = true;
    tokenizer["added_tokens"][1][rule] = false;
    const std::string config =
        R"({"added_tokens_decoder": {"4": )" + tokenizer["added_tokens"][0].dump() + "}}";
    const Vocabulary vocabulary = bpe_with(tokenizer, {{"tokenizer_config.json", config}});
    REQUIRE(vocabulary.notes.size() == 1);
    CHECK(vocabulary.notes[0].ends_with("split differently: <|end|>"));
  }
}

TEST_CASE("a chat template is found in every place", "[formats]") {
  const auto chat_template = [](const std::string& file, const std::string& text) {
    return bpe_with(tiny_bpe(), {{file, text}});
  };
  CHECK(chat_template("tokenizer_config.json", R"({"chat_template": "{{x}}"})").chat_template ==
        "{{x}}");
  CHECK(chat_template("chat_template.jinja", "{{y}}").chat_template == "{{y}}");
  CHECK(chat_template("chat_template.json", R"({"chat_template": "z"})").chat_template == "z");
  const Vocabulary several = chat_template("tokenizer_config.json", R"({"chat_template": [
      {"name": "tools", "template": "t"}, {"name": "default", "template": "d"}]})");
  CHECK(several.chat_template == "d");
  REQUIRE(several.notes.size() == 1);
  CHECK(several.notes[0].find("tools") != std::string::npos);
  CHECK(bpe_with(tiny_bpe()).chat_template.empty());
  const Vocabulary twice =
      bpe_with(tiny_bpe(), {{"tokenizer_config.json", R"({"chat_template": "{{x}}"})"},
                            {"chat_template.jinja", "{{y}}"}});
  CHECK(twice.chat_template == "{{y}}");
  const Vocabulary further = bpe_with(
      tiny_bpe(),
      {{"chat_template.jinja", "{{y}}"}, {"additional_chat_templates/tool_use.jinja", "{{t}}"}});
  CHECK(further.chat_template == "{{y}}");
  REQUIRE(further.notes.size() == 1);
  CHECK(further.notes[0].find("tool_use is left out") != std::string::npos);
}

TEST_CASE("an unsupported tokenizer gives no vocabulary and a note", "[formats]") {
  const Vocabulary none = vocabulary_of({{"vocab.json", "{}"}}, 4);
  CHECK_FALSE(none.present());
  CHECK(none.tokens.empty());
  CHECK(none.notes.size() == 1);
  const Vocabulary other =
      vocabulary_of({{"tokenizer.json", R"({"model": {"type": "Unigram", "vocab": []}})"}}, 4);
  CHECK_FALSE(other.present());
  REQUIRE(other.notes.size() == 1);
  CHECK(other.notes[0].find("Unigram") != std::string::npos);
}

TEST_CASE("files that are not SentencePiece models are refused", "[formats]") {
  const auto refusal = [](const std::string& bytes) {
    return refusal_of([&] { parse_sentencepiece_model(bytes, "tokenizer.model"); });
  };
  CHECK_THAT(refusal(""), is_bad_input("tokenizer.model", "no pieces"));
  CHECK_THAT(refusal(field(7, "other")), is_bad_input("no pieces"));
  CHECK_THAT(refusal(piece("a", 0, 7)), is_bad_input("type 7"));
  const std::string whole = piece("a", 0, kNormal);
  for (std::size_t length = 1; length < whole.size(); ++length) {
    CAPTURE(length);
    CHECK_THAT(refusal(whole.substr(0, length)), is_bad_input("tokenizer.model", "malformed"));
  }
  const std::string endless(11, '\xff');
  for (const std::string& bytes :
       {endless, "\x0a" + endless, std::string("\x0b"), std::string("\x02\x01z"),
        std::string("\x0a\xff\xff\xff\xff\x0f"), field(1, field(1, "ab").substr(0, 3))}) {
    CHECK_THAT(refusal(bytes), is_bad_input("malformed"));
  }
}

TEST_CASE("SentencePiece models that would crash the library are refused", "[formats]") {
  const auto refusal = [](const std::string& bytes) {
    return refusal_of([&] { parse_sentencepiece_model(bytes, "tokenizer.model"); });
  };
  const std::string good = piece("a", 0, kNormal);
  CHECK_THAT(refusal(good + piece(std::string(4097, 'x'), 0, kNormal)),
             is_bad_input("4097 bytes", "at most 4096"));
  CHECK_THAT(refusal(good + piece(std::string("a\0b", 3), 0, kNormal)), is_bad_input("NUL byte"));
  CHECK_THAT(refusal(good + piece("b", std::numeric_limits<float>::quiet_NaN(), kNormal)),
             is_bad_input("piece \"b\"", "not a number"));
  // protobuf truncates a tag of more than 32 bits to another one.
  CHECK_THAT(refusal(good + "\x8a\x80\x80\x80\x10" + std::string(1, '\0')),
             is_bad_input("malformed"));
  std::string nested = good;
  for (std::size_t length = 1; length <= 64; ++length) {
    nested += piece(std::string(length, 'u'), 0, kUserDefined);
    nested += piece(std::string(length - 1, 'u') + "x", 0, kUserDefined);
  }
  CHECK(parse_sentencepiece_model(nested, "m").pieces.size() == 129);
  CHECK_THAT(refusal(nested + piece(std::string(65, 'u'), 0, kUserDefined)),
             is_bad_input("more than 64 user-defined pieces"));
}

TEST_CASE("unknown fields are skipped", "[formats]") {
  const std::string eight_bytes = "\x59" + std::string(8, '\1');
  const SentencePieceModel model = parse_sentencepiece_model(
      eight_bytes + field(12, 1) + field(1, field(9, 1) + field(1, "a")) + field(9, "x"), "m");
  REQUIRE(model.pieces.size() == 1);
  CHECK(model.pieces[0].text == "a");
}

TEST_CASE("malformed tokenizer.json files are refused", "[formats]") {
  const auto refusal = [](const char* pointer, const char* value) {
    Json tokenizer = tiny_bpe();
    tokenizer[Json::json_pointer(pointer)] = Json::parse(value);
    return refusal_of([&] { bpe_with(tokenizer); });
  };
  CHECK_THAT(refusal("/model/vocab", "[]"), is_bad_input("tokenizer.json", "vocabulary"));
  CHECK_THAT(refusal("/model/vocab", "{}"), is_bad_input("tokenizer.json", "vocabulary"));
  CHECK_THAT(refusal("/model/vocab/a", "\"0\""), is_bad_input("token a", "whole"));
  CHECK_THAT(refusal("/model/vocab/a", "-1"), is_bad_input("token a", "-1"));
  CHECK_THAT(refusal("/model/vocab/a", "1"), is_bad_input("the same id 1"));
  CHECK_THAT(refusal("/model/merges", "{}"), is_bad_input("merges"));
  for (const char* merge : {"3", "\"ab\"", "\" b\"", "\"a \"", "[\"a\"]", "[\"a\", 1]"}) {
    CAPTURE(merge);
    CHECK_THAT(refusal("/model/merges/0", merge), is_bad_input("tokenizer.json", "merge"));
  }
  CHECK_THAT(refusal("/added_tokens/0", "7"), is_bad_input("added_tokens"));
  CHECK_THAT(refusal("/added_tokens/0/id", "\"4\""), is_bad_input("added token", "id"));
  CHECK_THAT(refusal("/added_tokens/0/id", "-4"), is_bad_input("added token", "-4"));
}

TEST_CASE("malformed files next to a tokenizer are refused", "[formats]") {
  const auto refusal = [](const std::string& name, const std::string& text) {
    return refusal_of([&] { bpe_with(tiny_bpe(), {{name, text}}); });
  };
  CHECK_THAT(refusal("tokenizer_config.json", "["), is_bad_input("tokenizer_config.json"));
  CHECK_THAT(
      refusal("tokenizer_config.json", R"({"added_tokens_decoder": {"x": {"content": ""}}})"),
      is_bad_input("tokenizer_config.json", "id x"));
  CHECK_THAT(refusal("tokenizer_config.json", R"({"added_tokens_decoder": {"1": "a"}})"),
             is_bad_input("added_tokens_decoder"));
  CHECK_THAT(refusal("added_tokens.json", R"({"a": "b"})"), is_bad_input("added_tokens.json"));
  CHECK_THAT(refusal_of([] {
               vocabulary_of({{"vocab.json", R"({"a": 0})"}, {"merges.txt", "a b c"}}, 1);
             }),
             is_bad_input("merges.txt", "a b c"));
}

}  // namespace
}  // namespace regroup
