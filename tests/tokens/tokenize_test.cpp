// Limits on what is tokenized; everything else is tested with the program.
#include "tokens/tokenize.h"

#include <catch2/catch_test_macros.hpp>

#include "formats/vocabulary/token_file.h"
#include "tests/file_tree.h"
#include "tests/refusal.h"
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

// "a" to "c" are tokens 0 to 2, of which the model has rows for two.
class LettersOfSmallModel : public Tokenizer {
 public:
  LettersOfSmallModel() {
    set_rows(2);
    set_file("letters/tokenizer.json");
  }
  void encode(std::string_view text, bool, std::vector<std::uint32_t>& ids) const override {
    for (const char letter : text) {
      ids.push_back(static_cast<std::uint32_t>(letter - 'a'));
    }
  }
  void for_each_token(
      const std::function<void(std::int64_t, std::string_view)>& visit) const override {
    for (int id = 0; id < 3; ++id) {
      visit(id, std::string(1, static_cast<char>('a' + id)));
    }
  }
  std::string decode(std::span<const std::uint32_t> ids) const override {
    std::string text;
    for (const std::uint32_t id : ids) {
      text += static_cast<char>('a' + id);
    }
    return text;
  }
  std::int64_t vocabulary() const override { return 3; }
  bool reads_utf8() const override { return false; }
};

}  // namespace

TEST_CASE("a text is refused only if it gives a token that the model has no row for", "[tokens]") {
  const TemporaryDirectory directory;
  const std::atomic<bool> stop{false};
  TokenizeSettings settings;
  settings.inputs = {(directory / "text").string()};
  settings.output = directory / "tokens.bin";
  LettersOfSmallModel letters;
  put_file(directory / "text", "abc");
  CHECK_THAT(refusal_of([&] { tokenize(letters, settings, {}, stop); }),
             is_bad_input("letters/tokenizer.json", "the token c, which has the id 2", "2 tokens"));
  CHECK_FALSE(std::filesystem::exists(settings.output));
  put_file(directory / "text", "abba");
  DocumentEnds ends;
  ends.eos = 2;
  ends.add_eos = true;
  letters.set_ends(ends);
  CHECK_THAT(refusal_of([&] { tokenize(letters, settings, {}, stop); }), is_bad_input("token c"));
  letters.set_ends({});
  CHECK(tokenize(letters, settings, {}, stop).tokens == 4);
  TokenFile::open(settings.output).check_vocabulary(2);
}

TEST_CASE("inputs share a limit of tokens", "[tokens]") {
  CHECK(written({100, 100, 100}, 9) == "aaabbbccc");
  CHECK(written({1, 100, 100}, 9) == "abbbbcccc");
  CHECK(written({3'000'000, 2, 100}, 9) == "aaabbcccc");
  CHECK(written({100}, 4) == "aaaa");
  CHECK(written({2, 3}, 100) == "aabbb");
}

}  // namespace regroup
