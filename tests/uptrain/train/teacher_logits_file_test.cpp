// Stored teacher logits that are damaged, forged or of another version.
#include "uptrain/train/teacher_logits_file.h"

#include <cstring>
#include <functional>
#include <span>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers.hpp>

#include "tests/file_tree.h"
#include "tests/refusal.h"
#include "tests/temporary_directory.h"
#include "tests/uptrain/taught_run.h"

namespace regroup {
namespace {

namespace fs = std::filesystem;

TEST_CASE("damaged teacher logits are refused", "[uptrain]") {
  const TemporaryDirectory directory;
  const UptrainSettings run = taught_run(directory.path(), 4);
  const fs::path last = directory / "answers" / "answers-00004.safetensors";
  const auto refusal = [&] { return refusal_of([&] { run_to_end(run); }); };
  std::string bytes = bytes_of_file(last);
  SECTION("truncated") {
    put_file(last, std::string_view(bytes).substr(0, bytes.size() - 2));
    CHECK_THAT(refusal(), is_bad_input("answers-00004.safetensors"));
  }
  SECTION("missing") {
    fs::remove(last);
    CHECK_THAT(refusal(), is_bad_input("answers-00004.safetensors"));
  }
  SECTION("one flipped bit in the last file") {
    bytes[bytes.size() - 1] = static_cast<char>(bytes[bytes.size() - 1] ^ 1);
    put_file(last, bytes);
    CHECK_THAT(refusal(), is_bad_input("answers-00004.safetensors", "window 23", "checksum"));
  }
  SECTION("a copy of another file in its place") {
    fs::copy_file(directory / "answers" / "answers-00003.safetensors", last,
                  fs::copy_options::overwrite_existing);
    CHECK_THAT(refusal(), is_bad_input("answers-00004.safetensors", "regroup.file is 3"));
  }
  CHECK_FALSE(fs::exists(directory / "out.run"));
}

TEST_CASE("files that are no teacher logits of this version are refused", "[uptrain]") {
  const TemporaryDirectory directory;
  const UptrainSettings run = taught_run(directory.path(), 4);
  const auto refusal = [&] { return refusal_of([&] { run_to_end(run); }); };
  SECTION("an earlier version of the format") {
    const fs::path first = directory / "answers" / "answers-00000.safetensors";
    std::string text = bytes_of_file(first);
    const std::string now = R"(\"version\":2)";
    REQUIRE(text.find(now) != std::string::npos);
    text.replace(text.find(now), now.size(), R"(\"version\":1)");
    put_file(first, text);
    CHECK_THAT(refusal(), is_bad_input("answers-00000.safetensors", "earlier version",
                                       "run regroup teach again"));
  }
  SECTION("a directory without teacher logits") {
    fs::remove_all(directory / "answers");
    fs::copy(golden("llama"), directory / "answers");
    CHECK_THAT(refusal(), is_bad_input("answers", "not made by regroup teach"));
  }
  CHECK_FALSE(fs::exists(directory / "out.run"));
}

TEST_CASE("every flipped bit of stored teacher logits is detected", "[uptrain]") {
  const TemporaryDirectory directory;
  UptrainSettings run = short_run(directory.path(), "llama", 1);
  run.sequence_length = 3;
  TeachSettings settings = settings_for(run, golden("llama_bf16"), 3, 2);
  settings.file_bytes = settings.file_bytes / 5 * 2;
  make_answers(settings, directory / "answers");
  const auto check = [&] {
    const fs::path answers = directory / "answers";
    const TeacherLogitsFacts facts = TeacherLogitsCache::open(answers).facts();
    for (std::int64_t file = 0; file < facts.files(); ++file) {
      check_teacher_logits(open_teacher_logits_file(answers, facts, file), facts);
    }
  };
  CHECK_NOTHROW(check());
  for (const char* name : {"answers-00000.safetensors", "answers-00001.safetensors"}) {
    const fs::path file = directory / "answers" / name;
    const std::string bytes = bytes_of_file(file);
    for (std::size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
      std::string damaged = bytes;
      damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << bit % 8));
      put_file(file, damaged);
      CAPTURE(name, bit / 8, bit % 8);
      CHECK(refusal_of(check).kind() == ErrorKind::kBadInput);
    }
    put_file(file, bytes);
  }
}

// Changes the stored logits and updates the checksums.
void change_answers(const fs::path& directory, const std::function<void(std::span<char>)>& change) {
  const TeacherLogitsFacts facts = read_teacher_logits_facts(directory);
  const TeacherLogitsFile file = open_teacher_logits_file(directory, facts, 0);
  const fs::path path = directory / teacher_logits_file_name(0);
  std::string bytes = bytes_of_file(path);
  const StoredLogits stored = read_teacher_logits(file, facts, 0);
  std::string answers(reinterpret_cast<const char*>(stored.answers.data()), stored.answers.size());
  change(answers);
  const std::span<const char> ids(answers.data(), facts.id_bytes());
  std::copy(ids.begin(), ids.end(),
            bytes.begin() + static_cast<std::ptrdiff_t>(file.tensors.at("ids").begin));
  std::copy(
      answers.begin() + std::ssize(ids), answers.end(),
      bytes.begin() + static_cast<std::ptrdiff_t>(file.tensors.at("log_probabilities").begin));
  const std::uint64_t checksum =
      teacher_logits_checksum(file.header, 0, stored.window, std::as_bytes(std::span(answers)));
  std::memcpy(bytes.data() + file.tensors.at("checksums").begin, &checksum, sizeof checksum);
  put_file(path, bytes);
}

TEST_CASE("impossible teacher logits are refused even with valid checksums", "[uptrain]") {
  const TemporaryDirectory directory;
  const UptrainSettings run = taught_run(directory.path(), 4);
  const auto refusal = [&] { return refusal_of([&] { run_to_end(run); }); };
  SECTION("a token beyond the vocabulary") {
    change_answers(directory / "answers", [](std::span<char> bytes) { bytes[1] = 1; });
    CHECK_THAT(refusal(), is_bad_input("window 0", "vocabulary of 64 tokens"));
  }
  SECTION("a token twice") {
    change_answers(directory / "answers",
                   [](std::span<char> bytes) { std::copy_n(bytes.begin(), 2, bytes.begin() + 2); });
    CHECK_THAT(refusal(), is_bad_input("window 0", "a token twice"));
  }
  SECTION("NaN") {
    change_answers(directory / "answers",
                   [](std::span<char> bytes) { bytes[2 * 12 * 4 + 1] = 0x7e; });
    CHECK_THAT(refusal(), is_bad_input("window 0", "sum to 1"));
  }
  SECTION("a probability above 1") {
    change_answers(directory / "answers",
                   [](std::span<char> bytes) { bytes[2 * 12 * 4 + 1] = 0x4b; });
    CHECK_THAT(refusal(), is_bad_input("window 0", "sum to 1"));
  }
}

TEST_CASE("impossible metadata are refused", "[uptrain]") {
  const TemporaryDirectory directory;
  const UptrainSettings run = taught_run(directory.path(), 4);
  const fs::path first = directory / "answers" / "answers-00000.safetensors";
  const std::string bytes = bytes_of_file(first);
  const auto [from, to] = GENERATE(
      table<std::string, std::string>({{R"(\"samples\":24)", R"(\"samples\":-4)"},
                                       {R"(\"samples\":24)", R"(\"samples\":1e300)"},
                                       {R"(\"samples\":24)", R"(\"samples\":18446744073709551615)"},
                                       {R"(\"samples_per_file\":5)", R"(\"samples_per_file\":0)"},
                                       {R"(\"top\":4)", R"(\"top\":\"4\")"},
                                       {R"(\"questions\":{)", R"(\"questions\":7,\"more\":{)"}}));
  CAPTURE(to);
  std::string changed = bytes;
  REQUIRE(changed.find(from) != std::string::npos);
  changed.replace(changed.find(from), from.size(), to);
  std::uint64_t length = 0;
  std::memcpy(&length, changed.data(), sizeof length);
  length += to.size() - from.size();
  std::memcpy(changed.data(), &length, sizeof length);
  put_file(first, changed);
  CHECK_THAT(refusal_of([&] { run_to_end(run); }),
             is_bad_input("answers-00000.safetensors", "not understood"));
}

}  // namespace
}  // namespace regroup
