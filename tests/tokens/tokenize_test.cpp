// Limits on what is tokenized; everything else is tested with the program.
#include "tokens/tokenize.h"

#include <catch2/catch_test_macros.hpp>

#include "formats/vocabulary/token_file.h"
#include "tests/file_tree.h"
#include "tests/temporary_directory.h"

namespace regroup {
namespace {

// What is written of three inputs of as many bytes each, with this limit.
std::string written(const std::vector<std::size_t>& sizes, std::int64_t most) {
  const TemporaryDirectory directory;
  TokenizeSettings settings;
  char letter = 'a';
  for (const std::size_t size : sizes) {
    const auto file = directory / (std::string(1, letter) + ".txt");
    put_file(file, std::string(size, letter++));
    settings.inputs.push_back(file.string());
  }
  settings.output = directory / "tokens.bin";
  settings.max_tokens = most;
  const std::atomic<bool> stop{false};
  const TokenizeResult result = tokenize(*open_tokenizer("bytes"), settings, {}, stop);
  const TokenFile file = TokenFile::open(settings.output);
  CHECK(result.tokens == file.size());
  CHECK(result.documents == std::ssize(sizes));
  std::vector<std::int64_t> ids(static_cast<std::size_t>(file.size()));
  file.read(0, ids);
  return {ids.begin(), ids.end()};
}

}  // namespace

TEST_CASE("inputs share a limit of tokens", "[tokens]") {
  CHECK(written({100, 100, 100}, 9) == "aaabbbccc");
  CHECK(written({1, 100, 100}, 9) == "abbbbcccc");
  CHECK(written({3'000'000, 2, 100}, 9) == "aaabbcccc");
  CHECK(written({100}, 4) == "aaaa");
  CHECK(written({2, 3}, 100) == "aabbb");
}

}  // namespace regroup
