// `regroup tokenize` as a program.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "formats/vocabulary/token_file.h"
#include "tests/child_program.h"
#include "tests/file_tree.h"
#include "tests/temporary_directory.h"
#include "tests/tokens/sentencepiece_builder.h"

namespace regroup {
namespace {

using Catch::Matchers::ContainsSubstring;
using Arguments = std::vector<std::string>;
using Documents = std::vector<std::vector<std::int64_t>>;

ProgramResult tokenize(const Arguments& more, const Arguments& under = {}) {
  Arguments arguments{"tokenize"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return run_program(arguments, under);
}

Documents documents_in(const std::filesystem::path& path) {
  const TokenFile file = TokenFile::open(path);
  Documents documents;
  file.for_each_document({}, [&](std::int64_t begin, std::int64_t end) {
    documents.emplace_back(end - begin);
    file.read(begin, documents.back());
  });
  return documents;
}

}  // namespace

TEST_CASE("tokenize makes one document from each line of JSON", "[tokens]") {
  const TemporaryDirectory directory;
  const std::string output = directory / "corpus.bin";
  put_file(directory / "a.jsonl", "{\"text\": \"ab\"}\n{\"text\": \"\"}\n{\"text\": \"c\"}\n");
  put_file(directory / "b.txt", "de");
  const auto made = tokenize({directory / "a.jsonl", directory / "b.txt", "--tokenizer", "bytes",
                              "-o", output, "--eos-token", "256", "--json"});
  REQUIRE(made.exit_code == 0);
  const Json report = made.json();
  CHECK(report["tokens"] == 8);
  CHECK(report["documents"] == 3);
  CHECK(report["empty_documents"] == 1);
  CHECK(report["vocabulary"] == 257);
  CHECK(report["token_bytes"] == 2);
  CHECK(report["layout"] == "megatron");
  CHECK(report["eos"] == 256);
  CHECK(report["bos"].is_null());
  CHECK(documents_in(output) == Documents{{97, 98, 256}, {99, 256}, {100, 101, 256}});
  const auto again = tokenize({directory / "b.txt", "--tokenizer", "bytes", "-o", output});
  CHECK(again.exit_code == 2);
  CHECK(again.one_line_of_error());
}

TEST_CASE("tokenize gives the same file for any number of threads", "[tokens]") {
  const TemporaryDirectory directory;
  std::string lines;
  for (int i = 0; i < 20'000; ++i) {
    lines += "{\"text\": \"" +
             std::string(static_cast<std::size_t>(i * 37 % 800), static_cast<char>('a' + i % 26)) +
             "\"}\n";
  }
  put_file(directory / "a.jsonl", lines);
  const auto made = [&](const std::string& name, const std::string& threads) {
    CHECK(tokenize({directory / "a.jsonl", "--tokenizer", "bytes", "--threads", threads, "-o",
                    directory / name})
              .exit_code == 0);
    return bytes_of_file(directory / name);
  };
  const std::string one = made("one.bin", "1");
  CHECK(one.size() > 4'000'000);
  CHECK(made("three.bin", "3") == one);
  CHECK(bytes_of_file(directory / "three.idx") == bytes_of_file(directory / "one.idx"));
}

TEST_CASE("tokenize refuses invalid requests with one line and leaves no files", "[tokens]") {
  const TemporaryDirectory directory;
  put_file(directory / "in/text", "text");
  put_file(directory / "in/empty", "");
  put_file(directory / "in/bad.jsonl", "{\"text\": \"fine\"}\n{\"body\": \"\"}\n");
  put_file(directory / "in/broken.model", "\x0a\x05");
  const std::string in = directory / "in", out = directory / "out/x.bin";
  const auto refused = [&](int code, const std::string& word, const Arguments& arguments) {
    const auto result = tokenize(arguments);
    CHECK(result.exit_code == code);
    CHECK(result.one_line_of_error());
    CHECK_THAT(result.err, ContainsSubstring(word));
    CHECK_FALSE(std::filesystem::exists(directory / "out"));
  };
  refused(3, "no text", {in + "/empty", "--tokenizer", "bytes", "-o", out});
  refused(3, "bad.jsonl:2", {in + "/bad.jsonl", "--tokenizer", "bytes", "-o", out});
  refused(3, "none", {in + "/none", "--tokenizer", "bytes", "-o", out});
  refused(3, "directory", {in, "--tokenizer", "bytes", "-o", out});
  refused(2, "--format", {in + "/text", "--tokenizer", "bytes", "-o", directory / "out/x"});
  refused(2, "--field has no effect",
          {in + "/text", "--tokenizer", "bytes", "-o", out, "--field", "body"});
  refused(2, "--skip-invalid has no effect",
          {in + "/text", "--tokenizer", "bytes", "-o", out, "--skip-invalid"});
  refused(2, "--document-separator has no effect",
          {in + "/bad.jsonl", "--tokenizer", "bytes", "-o", out, "--document-separator", "---"});
  refused(2, "no such token", {in + "/text", "--tokenizer", "bytes", "-o", out, "--bos"});
  refused(2, "--no-eos",
          {in + "/text", "--tokenizer", "bytes", "-o", out, "--no-eos", "--eos-token", "3"});
  refused(2, "tokenizer", {in + "/text", "-o", out});
  refused(2, "2147483648",
          {in + "/text", "--tokenizer", "bytes", "-o", out, "--eos-token", "2147483647"});
  refused(REGROUP_WITH_SENTENCEPIECE ? 3 : 2, "broken.model",
          {in + "/text", "--tokenizer", in + "/broken.model", "-o", out});
}

#if REGROUP_WITH_SENTENCEPIECE

TEST_CASE("tokenize writes SentencePiece ids between BOS and EOS", "[tokens]") {
  const TemporaryDirectory directory;
  const auto model = llama_like({"\u2581", "a", "b", "ab", "\u2581ab"});
  put_file(directory / "tokenizer.model", model.bytes());
  put_file(directory / "text", "ab ab\n---\nb\n");
  const auto made = [&](const std::string& name, const Arguments& more) {
    Arguments arguments{directory / "text",     "--tokenizer", directory.path(),
                        "--document-separator", "---",         "-o",
                        directory / name};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const auto result = tokenize(arguments);
    CHECK(result.exit_code == 0);
    return result;
  };
  const auto shown = made("both.bin", {});
  CHECK_THAT(shown.out, ContainsSubstring("begins with token 1, ends with token 2"));
  CHECK(documents_in(directory / "both.bin") ==
        Documents{{1, 263, 263, 13, 2}, {1, 259, 261, 13, 2}});
  made("none.bin", {"--no-bos", "--no-eos"});
  CHECK(documents_in(directory / "none.bin") == Documents{{263, 263, 13}, {259, 261, 13}});
}

TEST_CASE("errors from the SentencePiece library are reported in one line", "[tokens]") {
  const TemporaryDirectory directory;
  auto model = llama_like({"a", "a"});
  put_file(directory / "tokenizer.model", model.bytes());
  put_file(directory / "text", "a");
  const auto result =
      tokenize({directory / "text", "--tokenizer", directory.path(), "-o", directory / "out.bin"});
  CHECK(result.exit_code == 3);
  CHECK(result.one_line_of_error());
}

#endif

}  // namespace regroup
