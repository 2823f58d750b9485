// Tokenizers in files that are older than tokenizer.json, with hand-computed ids.
#include <catch2/catch_test_macros.hpp>
#include <fmt/format.h>

#include "formats/base/printable.h"
#include "formats/vocabulary/tokenizer_files.h"
#include "tests/file_tree.h"
#include "tests/refusal.h"
#include "tests/temporary_directory.h"
#include "tokens/tokenizer.h"

namespace regroup {
namespace {

using TokenIds = std::vector<std::uint32_t>;

// A document with its ends, as tokenize() writes it.
TokenIds document_of(const std::filesystem::path& tokenizer, std::string_view text) {
  const auto opened = open_tokenizer(tokenizer.string());
  const DocumentEnds& ends = opened->ends();
  TokenIds ids;
  if (ends.add_bos) {
    ids.push_back(static_cast<std::uint32_t>(*ends.bos));
  }
  opened->encode(text, true, ids);
  if (ends.add_eos) {
    ids.push_back(static_cast<std::uint32_t>(*ends.eos));
  }
  return ids;
}

void put_class(const TemporaryDirectory& directory, const std::string& name) {
  put_file(directory / "tokenizer_config.json",
           fmt::format(R"({{"tokenizer_class": "{}", "eos_token": "<|endoftext|>"}})", name));
}

Error refusal_to_open(const TemporaryDirectory& directory) {
  return refusal_of([&] { open_tokenizer(directory.path().string()); });
}

#if REGROUP_WITH_TOKENIZER_JSON

TEST_CASE("vocab.json and merges.txt are GPT-2's tokenizer", "[tokens]") {
  const TemporaryDirectory directory;
  put_file(directory / "vocab.json",
           R"({"a": 0, "b": 1, "Ġ": 2, "ab": 3, "Ġab": 4, "<|endoftext|>": 5, "Ã": 6, "©": 7})");
  put_file(directory / "merges.txt", "#version: 0.2\na b\r\nĠ ab\n");
  CHECK(document_of(directory.path(), "ab abb é") == TokenIds{3, 4, 1, 2, 6, 7});
  put_class(directory, "GPT2Tokenizer");
  CHECK(document_of(directory.path(), "<|endoftext|>a").back() == 5);
  CHECK(document_of(directory / "vocab.json", "ab") == TokenIds{3, 5});
  put_file(directory / "tokenizer_config.json",
           R"({"tokenizer_class": "GPT2TokenizerFast", "add_prefix_space": true,
               "add_bos_token": true, "bos_token": "b",
               "added_tokens_decoder": {"8": {"content": "<tool>", "special": false}}})");
  CHECK(document_of(directory.path(), "ab<tool>a") == TokenIds{1, 4, 8, 2, 0});
}

TEST_CASE("classes with their own ends or splits are read so, and others refused", "[tokens]") {
  const TemporaryDirectory directory;
  put_file(directory / "vocab.json",
           R"({"<s>": 0, "</s>": 1, "1": 2, "11": 3, "e": 4, "Ì": 5, "ģ": 6, "Ã": 7, "©": 8})");
  put_file(directory / "merges.txt", "1 1\n");
  put_file(directory / "config.json", R"({"model_type": "gpt2"})");
  CHECK(document_of(directory.path(), "11e\u0301") == TokenIds{3, 4, 5, 6});
  put_file(directory / "config.json", R"({"model_type": "roberta"})");
  CHECK(document_of(directory.path(), "11") == TokenIds{0, 3, 1});
  put_file(directory / "config.json", R"({"model_type": "qwen2"})");  // digits apart, NFC
  CHECK(document_of(directory.path(), "11e\u0301") == TokenIds{2, 2, 7, 8});
  put_file(directory / "config.json", R"({"model_type": "clip"})");
  CHECK_THAT(refusal_to_open(directory), is_wrong_usage("vocab.json", "clip", "save_pretrained"));
  put_class(directory, "PhobertTokenizer");
  CHECK_THAT(refusal_to_open(directory), is_wrong_usage("PhobertTokenizer"));
}

TEST_CASE("vocab.txt is BERT's tokenizer", "[tokens]") {
  const TemporaryDirectory directory;
  put_file(directory / "vocab.txt", "[PAD]\r\n[UNK]\r\n[CLS]\r\n[SEP]\r\nkey\r\n##s\r\nKey\r\n.");
  CHECK(document_of(directory.path(), "Keys. queries") == TokenIds{2, 4, 5, 7, 1, 3});
  put_file(directory / "tokenizer_config.json", R"({"do_lower_case": false})");
  CHECK(document_of(directory.path(), "Keys") == TokenIds{2, 6, 5, 3});
  put_file(directory / "tokenizer_config.json", R"({"tokenizer_class": "RoFormerTokenizer"})");
  CHECK_THAT(refusal_to_open(directory), is_wrong_usage("vocab.txt", "RoFormerTokenizer"));
  put_file(directory / "tokenizer_config.json", "{}");
  put_file(directory / "vocab.txt", "a\n\xff\n");
  CHECK_THAT(refusal_to_open(directory), is_bad_input("vocab.txt", "line 2", "UTF-8"));
}

// Every byte is the token of its number; 256 is "ab", 257 "abc", 258 " a" and 259 "bc".
std::string ranks() {
  std::string lines;
  std::uint32_t rank = 0;
  for (int byte = 0; byte < 256; ++byte) {
    lines += fmt::format("{} {}\n", base64_of(std::string(1, static_cast<char>(byte))), rank++);
  }
  for (const char* token : {"ab", "abc", " a", "bc"}) {
    lines += fmt::format("{} {}\n", base64_of(token), rank++);
  }
  return lines;
}

TEST_CASE("tiktoken's ranks are Llama 3's tokenizer", "[tokens]") {
  const TemporaryDirectory directory;
  put_file(directory / "tokenizer.model", ranks());
  // Words that are tokens are not merged; in others the lowest rank comes first.
  CHECK(document_of(directory.path(), "abc abcd\xc3\xa9") ==
        TokenIds{260, 257, 32, 257, 'd', 0xc3, 0xa9, 261});
  CHECK(document_of(directory / "tokenizer.model", "a a") == TokenIds{260, 'a', 258, 261});
  CHECK(open_tokenizer(directory.path().string())->id_of("<|begin_of_text|>") == 260);
  CHECK(open_tokenizer(directory.path().string())->id_of("<|eot_id|>") == 269);
  const auto refusal = [&](const std::string& text) {
    put_file(directory / "tokenizer.model", text);
    return refusal_to_open(directory);
  };
  for (const char* line :
       {"YQ== 0", "YQ=", "YQ== -1", "YQ== 200000", "Y Q== 9", " 7", "Y@== 300"}) {
    CAPTURE(line);
    CHECK_THAT(refusal(ranks() + line + "\n"), is_bad_input("tokenizer.model", "Base64"));
  }
}

#endif

TEST_CASE("of several tokenizer files the newest kind is a directory's", "[tokens]") {
  const TemporaryDirectory directory;
  CHECK_FALSE(tokenizer_file_in(directory.path()));
  put_file(directory / "vocab.json", "{}");
  CHECK_FALSE(tokenizer_file_in(directory.path()));  // without merges.txt
  for (const char* name : {"vocab.txt", "vocab.json", "tokenizer.model", "tokenizer.json"}) {
    put_file(directory / name, "");
    put_file(directory / (std::string(name) == "vocab.json" ? "merges.txt" : name), "");
    CHECK(tokenizer_file_in(directory.path()) == directory / name);
  }
  CHECK(tokenizer_file_in(directory.path(), false) == directory / "tokenizer.model");
}

}  // namespace
}  // namespace regroup
