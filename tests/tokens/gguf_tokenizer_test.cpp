// The tokenizer inside a GGUF file.
#include <catch2/catch_test_macros.hpp>

#include "formats/tensors/gguf.h"
#include "formats/vocabulary/tokenizer_files.h"
#include "formats/vocabulary/vocabulary.h"
#include "tests/file_tree.h"
#include "tests/gguf_builder.h"
#include "tests/refusal.h"
#include "tests/temporary_directory.h"
#include "tokens/tokenizer.h"

namespace regroup {
namespace {

constexpr std::uint32_t kU32Type = 4, kI32Type = 5, kBoolType = 7, kStringType = 8;

// "a" 0, "b" 1, "ab" 2, "<c>" 3 (control), "<u>" 4 (user-defined), and more entries.
GgufPieces gguf_of(std::string_view model, std::string_view pre) {
  std::string tokens, types;
  for (const char* token : {"a", "b", "ab", "<c>", "<u>"}) {
    tokens += gguf_string(token);
  }
  for (const std::uint32_t type : {1U, 1U, 1U, 3U, 4U}) {
    types += gguf_u32(type);
  }
  return {.entries = {gguf_entry("tokenizer.ggml.model", kStringType, gguf_string(model)),
                      gguf_entry("tokenizer.ggml.pre", kStringType, gguf_string(pre)),
                      gguf_array_entry("tokenizer.ggml.tokens", kStringType, 5, tokens),
                      gguf_array_entry("tokenizer.ggml.token_type", kI32Type, 5, types),
                      gguf_array_entry("tokenizer.ggml.merges", kStringType, 1, gguf_string("a b")),
                      gguf_entry("tokenizer.ggml.bos_token_id", kU32Type, gguf_u32(3)),
                      gguf_entry("tokenizer.ggml.eos_token_id", kU32Type, gguf_u32(3))}};
}

std::unique_ptr<Tokenizer> opened_gguf(const TemporaryDirectory& directory,
                                       const GgufPieces& pieces) {
  put_file(directory / "model.gguf", pieces.text());
  return open_tokenizer(directory / "model.gguf");
}

}  // namespace

#if REGROUP_WITH_TOKENIZER_JSON

TEST_CASE("the directory of a GGUF model has the tokenizer in the file", "[tokens]") {
  const TemporaryDirectory directory;
  put_file(directory / "model.gguf", gguf_of("gpt2", "gpt-2").text());
  const auto tokenizer = open_tokenizer(directory.path());
  CHECK(tokenizer->file() == directory / "model.gguf");
  CHECK(tokenizer->vocabulary() == 5);
  GgufPieces second = gguf_of("gpt2", "gpt-2");
  second.entries.push_back(gguf_entry("split.no", kU32Type, gguf_u32(1)));
  second.entries.push_back(gguf_entry("split.count", kU32Type, gguf_u32(2)));
  put_file(directory / "m-00002-of-00002.gguf", second.text());
  CHECK_THAT(refusal_of([&] { open_tokenizer(directory / "m-00002-of-00002.gguf"); }),
             is_bad_input("part 2 of 2", "m-00001-of-00002.gguf"));
}

TEST_CASE("a GGUF file's byte-level BPE encodes text", "[tokens]") {
  const TemporaryDirectory directory;
  const auto tokenizer = opened_gguf(directory, gguf_of("gpt2", "gpt-2"));
  std::vector<std::uint32_t> ids;
  tokenizer->encode("aba<u><c>b", true, ids);
  CHECK(ids == std::vector<std::uint32_t>{2, 0, 4, 1});  // "<", "c" and ">" have no tokens
  CHECK(tokenizer->left_out() == 3);
  CHECK(tokenizer->vocabulary() == 5);
  CHECK(tokenizer->file() == directory / "model.gguf");
  CHECK(tokenizer->ends().eos == 3);
  CHECK(tokenizer->ends().add_eos);
  CHECK_FALSE(tokenizer->ends().add_bos);
}

TEST_CASE("a GGUF file's SentencePiece tokens are decoded without the space before a text",
          "[tokens]") {
  Vocabulary vocabulary;
  vocabulary.model = "llama";
  vocabulary.tokens = {"<unk>", "\u2581a", "b", "!", "\u2581"};
  vocabulary.types = {2, 1, 1, 1, 1};
  vocabulary.scores = {0, -1, -2, -3, -4};
  vocabulary.special_ids = {{"unk", 0}};
  const std::vector<std::uint32_t> ids{1, 2, 3, 4, 1};
  for (const bool prefix : {true, false}) {
    vocabulary.add_space_prefix = prefix;
    const auto tokenizer = make_json_tokenizer(tokenizer_json_of(vocabulary, ""), "");
    CHECK(tokenizer->decode(ids) == (prefix ? "ab!  a" : " ab!  a"));
  }
}

TEST_CASE("a GGUF file says whether documents get BOS and EOS", "[tokens]") {
  const TemporaryDirectory directory;
  CHECK(opened_gguf(directory, gguf_of("gpt2", "llama-bpe"))->ends().add_bos);
  GgufPieces pieces = gguf_of("gpt2", "llama-bpe");
  pieces.entries.push_back(
      gguf_entry("tokenizer.ggml.add_bos_token", kBoolType, std::string(1, 0)));
  pieces.entries.push_back(
      gguf_entry("tokenizer.ggml.add_eos_token", kBoolType, std::string(1, 0)));
  const DocumentEnds ends = opened_gguf(directory, pieces)->ends();
  CHECK_FALSE(ends.add_bos);
  CHECK_FALSE(ends.add_eos);
}

TEST_CASE("the split of a GGUF's tokenizer has the name that it came from", "[tokens]") {
  const TemporaryDirectory directory;
  for (const std::string name :
       {"gpt-2", "olmo", "starcoder", "command-r", "llama-bpe", "dbrx", "qwen2", "gpt-4o", "tekken",
        "bloom", "falcon", "deepseek-llm", "deepseek-coder", "deepseek-v3", "default"}) {
    CAPTURE(name);
    put_file(directory / "model.gguf", gguf_of("gpt2", name).text());
    const GgufMetadata metadata = open_gguf(directory / "model.gguf").metadata;
    CHECK(pre_tokenizer_name(tokenizer_json_of(vocabulary_in(metadata), "")) == name);
  }
}

// The ids of "1111 .$" where "1" is 0, "11" 1, "1111" 2, "." 3, "$" 4, ".$" 5 and " " 6.
std::vector<std::uint32_t> ids_split_by(const char* pre) {
  Vocabulary vocabulary;
  vocabulary.model = "gpt2";
  vocabulary.pre = pre;
  vocabulary.tokens = {"1", "11", "1111", ".", "$", ".$", "\u0120"};
  vocabulary.types.assign(7, 1);
  vocabulary.merges = {"1 1", "11 11", ". $"};
  std::vector<std::uint32_t> ids;
  make_json_tokenizer(tokenizer_json_of(vocabulary, ""), "")->encode("1111 .$", true, ids);
  return ids;
}

TEST_CASE("text is split as the name in a GGUF file says, or by llama.cpp's default", "[tokens]") {
  using Split = std::vector<std::uint32_t>;
  for (const char* name : {"gpt-2", "jina-v2-code", "roberta-bpe", "exaone4"}) {
    CHECK(ids_split_by(name) == Split{2, 6, 5});
  }
  for (const char* name : {"starcoder", "exaone", "qwen2", "stablelm2"}) {
    CHECK(ids_split_by(name) == Split{0, 0, 0, 0, 6, 5});  // digits apart
  }
  for (const char* name : {"llama-bpe", "falcon3", "pixtral", "lfm2", "default", ""}) {
    CHECK(ids_split_by(name) == Split{1, 0, 0, 6, 5});  // digits in threes
  }
}

TEST_CASE("tokenizers of GGUF files that are not known are refused", "[tokens]") {
  const TemporaryDirectory directory;
  const auto refusal = [&](const GgufPieces& pieces) {
    return refusal_of([&] { opened_gguf(directory, pieces); });
  };
  CHECK_THAT(refusal(gguf_of("rwkv", "default")), is_bad_input("model.gguf", "is rwkv", "gpt2"));
  CHECK_THAT(refusal(gguf_of("gpt2", "viking")), is_bad_input("is viking", "qwen2"));
  CHECK_THAT(refusal(gguf_of("gpt2", "jina-v")), is_bad_input("is jina-v,"));
  CHECK_THAT(refusal({}), is_bad_input("tokenizer.ggml.model is missing"));
  GgufPieces short_types = gguf_of("gpt2", "gpt-2");
  short_types.entries[3] = gguf_array_entry("tokenizer.ggml.token_type", kI32Type, 1, gguf_u32(1));
  CHECK_THAT(refusal(short_types), is_bad_input("token_type", "5 tokens"));
  GgufPieces twice = gguf_of("gpt2", "gpt-2");
  twice.entries[2] = gguf_array_entry(
      "tokenizer.ggml.tokens", kStringType, 5,
      gguf_string("a") + gguf_string("a") + gguf_string("c") + gguf_string("d") + gguf_string("e"));
  CHECK_THAT(refusal(twice), is_bad_input("tokens lists a twice"));
  GgufPieces no_merges = gguf_of("gpt2", "gpt-2");
  no_merges.entries[4] = gguf_entry("tokenizer.ggml.merges", kU32Type, gguf_u32(1));
  CHECK_THAT(refusal(no_merges), is_bad_input("tokenizer.ggml.merges"));
}

#else

TEST_CASE("a build without PCRE2 and utf8proc reads no tokenizer of a GGUF file", "[tokens]") {
  const TemporaryDirectory directory;
  CHECK_THAT(refusal_of([&] { opened_gguf(directory, gguf_of("gpt2", "gpt-2")); }),
             is_wrong_usage("without PCRE2", "--tokenizer bytes"));
}

#endif

}  // namespace regroup
