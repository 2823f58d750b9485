// The demo's text: what is trained on and what is held out.
#include "cli/commands/demo_corpus.h"

#include <string>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <fmt/format.h>

#include "tests/file_tree.h"
#include "tests/refusal.h"
#include "tests/temporary_directory.h"

namespace regroup {
namespace {

constexpr std::uint64_t kMany = 8'000'000;

// Text of lines that name it: "07 07 07 ...".
std::string text_named(int number, std::size_t bytes) {
  std::string text;
  while (text.size() < bytes) {
    text += fmt::format("{:02} ", number);
  }
  text.resize(bytes);
  return text;
}

TEST_CASE("every tenth file of a directory is held out, in the order of names", "[cli]") {
  const TemporaryDirectory directory;
  std::string training, held_out;
  for (int number = 0; number < 20; ++number) {
    const std::string text = text_named(number, 20'000);
    put_file(directory / "text" / fmt::format("{:02}.txt", number), text);
    (number % 10 == 9 ? held_out : training) += text;
  }
  const DemoCorpus corpus = read_demo_corpus(directory / "text", kMany);
  CHECK((corpus.training == training));
  CHECK((corpus.held_out == held_out));
  CHECK(corpus.origin == directory / "text");
}

TEST_CASE("comments at the beginning of files and binary files are left out", "[cli]") {
  const TemporaryDirectory directory;
  const std::string text = text_named(1, 300'000);
  put_file(directory / "text" / "a.h", "// a licence\n// of two lines\n" + text);
  put_file(directory / "text" / "b.bin", std::string_view("binary\0", 7));
  CHECK((read_demo_corpus(directory / "text", kMany).training == text));
}

TEST_CASE("the last tenth of a single file is held out", "[cli]") {
  const TemporaryDirectory directory;
  const std::string text = text_named(2, 300'000);
  put_file(directory / "text", text);
  const DemoCorpus corpus = read_demo_corpus(directory / "text", kMany);
  CHECK((corpus.training == text.substr(0, 270'000)));
  CHECK((corpus.held_out == text.substr(270'000)));
}

TEST_CASE("of a larger file the beginning is read", "[cli]") {
  const TemporaryDirectory directory;
  const std::string text = text_named(3, 300'000);
  put_file(directory / "text", text);
  const DemoCorpus corpus = read_demo_corpus(directory / "text", 250'000);
  CHECK((corpus.training + corpus.held_out == text.substr(0, 250'000)));
}

TEST_CASE("too little text is refused", "[cli]") {
  const TemporaryDirectory directory;
  put_file(directory / "text", text_named(4, 199'999));
  CHECK_THAT(refusal_of([&] { read_demo_corpus(directory / "text", kMany); }),
             is_wrong_usage("199999 bytes of text", "200000"));
}

TEST_CASE("a byte token is a byte and a zero", "[cli]") {
  const TemporaryDirectory directory;
  write_byte_tokens(directory / "tokens", "a\xff");
  CHECK(bytes_of_file(directory / "tokens") == std::string("a\0\xff\0", 4));
}

}  // namespace
}  // namespace regroup
