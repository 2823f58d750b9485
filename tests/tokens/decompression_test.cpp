// Text that gzip and zstd have compressed, as those programs write it.
#include <atomic>
#include <cstdlib>
#include <string>
#include <vector>

#include <catch2/catch_test_macros.hpp>
#include <fmt/format.h>

#include "tests/child_program.h"
#include "tests/file_tree.h"
#include "tests/refusal.h"
#include "tests/temporary_directory.h"
#include "tokens/documents.h"

namespace regroup {
namespace {

const std::atomic<bool> kNeverStops{false};

// The documents of a file, joined from their parts.
std::vector<std::string> texts_in(const std::string& input, const TextSettings& settings = {}) {
  DocumentReader reader({input}, settings, kNeverStops);
  std::vector<std::string> texts;
  for (TextPart part; reader.next(part);) {
    if (part.begins) {
      texts.emplace_back();
    }
    texts.back() += part.text;
  }
  CHECK(reader.position() == reader.bytes_in_all());
  return texts;
}

// Whether a shell ran `command` without an error.
bool runs(const std::string& command) { return std::system(command.c_str()) == 0; }

struct Compression {
  std::string program, extension;
  bool built = false;
};

const std::vector<Compression> kCompressions{{"gzip", ".gz", REGROUP_WITH_ZLIB},
                                             {"zstd -q --rm", ".zst", REGROUP_WITH_ZSTD}};

// Compresses what `texts` hold, one part each, into one file. Empty if the program is not there.
std::string compressed(const Compression& compression, const TemporaryDirectory& directory,
                       const std::vector<std::string>& texts) {
  std::string all;
  for (const std::string& text : texts) {
    put_file(directory / "part", text);
    if (!runs(fmt::format("{} '{}' 2> /dev/null", compression.program,
                          std::string(directory / "part")))) {
      return {};
    }
    all += bytes_of_file(std::string(directory / "part") + compression.extension);
    std::filesystem::remove(std::string(directory / "part") + compression.extension);
  }
  return all;
}

std::string many_lines() {
  std::string lines;
  for (int i = 0; lines.size() < 3'000'000; ++i) {
    lines += fmt::format("{{\"text\": \"document {} \\u00e4\", \"n\": {}}}\n", i, i * 7919 % 10007);
  }
  return lines;
}

}  // namespace

TEST_CASE("compressed text is read as the text, whatever its name", "[tokens]") {
  const TemporaryDirectory directory;
  const std::string lines = many_lines();
  put_file(directory / "plain", lines);
  const auto expected = texts_in(directory / "plain");
  for (const Compression& compression : kCompressions) {
    const std::string bytes = compressed(compression, directory, {lines});
    if (!compression.built || bytes.empty()) {
      continue;
    }
    CAPTURE(compression.extension);
    put_file(directory / "lines", bytes);
    CHECK(texts_in(directory / "lines") == expected);
    CHECK(is_json(directory / "lines", {}) == true);
    put_file(directory / ("broken.jsonl" + compression.extension),
             compressed(compression, directory, {"no JSON"}));
    CHECK_THAT(refusal_of([&] { texts_in(directory / ("broken.jsonl" + compression.extension)); }),
               is_bad_input(":1", "not valid JSON"));
    put_file(directory / "parts", compressed(compression, directory, {"one ", "", "two"}));
    CHECK(texts_in(directory / "parts") == std::vector<std::string>{"one two"});
    put_file(directory / "empty", compressed(compression, directory, {""}));
    CHECK(texts_in(directory / "empty") == std::vector<std::string>{""});
    put_file(directory / "twice", compressed(compression, directory, {bytes}));
    CHECK_THAT(refusal_of([&] { texts_in(directory / "twice"); }),
               is_bad_input("data, text is needed"));
  }
}

TEST_CASE("compressed text that is damaged or cut is refused in one line", "[tokens]") {
  const TemporaryDirectory directory;
  for (const Compression& compression : kCompressions) {
    const std::string bytes = compressed(compression, directory, {many_lines()});
    if (!compression.built || bytes.empty()) {
      continue;
    }
    CAPTURE(compression.extension);
    const auto refusal = [&](const std::string& changed) {
      put_file(directory / "a", changed);
      return refusal_of([&] { texts_in(directory / "a"); });
    };
    for (const std::size_t length :
         {std::size_t{5}, std::size_t{20}, bytes.size() / 2, bytes.size() - 1}) {
      CAPTURE(length);
      CHECK_THAT(refusal(bytes.substr(0, length)), is_bad_input("/a", "incomplete"));
    }
    std::string damaged = bytes;
    for (std::size_t at = bytes.size() / 2; at < bytes.size() / 2 + 64; ++at) {
      damaged[at] = static_cast<char>(~damaged[at]);
    }
    CHECK(refusal(damaged).kind() == ErrorKind::kBadInput);
    CHECK_THAT(refusal(bytes + "and more"), is_bad_input("/a: cannot be decompressed"));
    CHECK_THAT(refusal(compressed(compression, directory, {std::string(300U << 20, 'x')})),
               is_bad_input("/a: more than 1000 bytes"));
    put_file(directory / "b", bytes);
    const std::atomic<bool> stop{true};
    DocumentReader reader({directory / "b"}, {}, stop);
    TextPart part;
    CHECK(refusal_of([&] { reader.next(part); }).kind() == ErrorKind::kInterrupted);
  }
}

TEST_CASE("a build without the library says how to read compressed text", "[tokens]") {
  const TemporaryDirectory directory;
  const std::vector<std::string> magics{"\x1f\x8b\x08 and so on", "\x28\xb5\x2f\xfd and so on"};
  for (std::size_t i = 0; i < magics.size(); ++i) {
    if (!kCompressions[i].built) {
      put_file(directory / "a", magics[i]);
      CHECK_THAT(refusal_of([&] { texts_in(directory / "a"); }),
                 is_wrong_usage("/a", "scripts/setup", "cat FILE | regroup"));
    }
  }
}

TEST_CASE("tokenize reads compressed text from standard input", "[tokens]") {
  const TemporaryDirectory directory;
  const std::string text = many_lines();
  for (const Compression& compression : kCompressions) {
    const std::string bytes = compressed(compression, directory, {text});
    if (!compression.built || bytes.empty()) {
      continue;
    }
    put_file(directory / "in", bytes);
    const std::string output = directory / ("out" + compression.extension.substr(1) + ".npy");
    REQUIRE(runs(fmt::format("{} tokenize - --tokenizer bytes --quiet --json -o '{}' < '{}' > '{}'",
                             REGROUP_PROGRAM, output, std::string(directory / "in"),
                             std::string(directory / "report"))));
    CHECK(Json::parse(bytes_of_file(directory / "report"))["text_bytes"] == text.size());
  }
}

}  // namespace regroup
