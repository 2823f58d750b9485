#include "formats/base/file.h"

#include <array>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <fmt/format.h>

#include "tests/file_tree.h"
#include "tests/refusal.h"
#include "tests/temporary_directory.h"

namespace regroup {
namespace {

TEST_CASE("a directory that cannot be listed is named", "[formats]") {
  const TemporaryDirectory directory;
  CHECK(entries_in(directory.path()).empty());
  write_text(directory / "file", "");
  CHECK(entries_in(directory.path()).front().path() == directory / "file");
  CHECK_THAT(refusal_of([&] { entries_in(directory / "none"); }),
             is_bad_input((directory / "none").string(), "No such file"));
  std::error_code fault;
  CHECK(entries_in(directory / "file", fault).empty());
  CHECK(fault == std::errc::not_a_directory);
}

TEST_CASE("open() accepts regular files only and never waits for a FIFO", "[formats]") {
  const TemporaryDirectory directory;
  CHECK_THAT(refusal_of([&] { File::open(directory / "none"); }),
             is_bad_input((directory / "none").string(), "No such file"));
  CHECK_THAT(refusal_of([&] { File::open(directory.path()); }), is_bad_input("a directory"));
  REQUIRE(::mkfifo((directory / "fifo").c_str(), 0600) == 0);
  CHECK_THAT(refusal_of([&] { File::open(directory / "fifo"); }),
             is_bad_input("not a regular file"));
  std::filesystem::create_symlink("loop", directory / "loop");
  CHECK_THAT(refusal_of([&] { File::open(directory / "loop"); }), is_bad_input("loop"));
}

TEST_CASE("open_or_create() accepts regular files only", "[formats]") {
  const TemporaryDirectory directory;
  REQUIRE(::mkfifo((directory / "fifo").c_str(), 0600) == 0);
  CHECK_THAT(refusal_of([&] { File::open_or_create(directory / "fifo"); }),
             is_bad_input("fifo", "not a regular file"));
  CHECK_THAT(refusal_of([&] { File::open_or_create("/dev/full"); }),
             is_bad_input("/dev/full", "not a regular file"));
  CHECK_THAT(refusal_of([&] { File::open_or_create(directory.path()); }),
             is_environment_failure("a directory"));
  put_file(directory / "old", "12345");
  for (const char* name : {"old", "new"}) {
    File file = File::open_or_create(directory / name);
    file.truncate(file.size() / 2);
    file.write_at(file.size() / 2, std::as_bytes(std::span("ab", 2)));
  }
  CHECK(bytes_of_file(directory / "old") == "12ab");
  CHECK(bytes_of_file(directory / "new") == "ab");
}

TEST_CASE("reading past the end reports where the file ended", "[formats]") {
  const TemporaryDirectory directory;
  put_file(directory / "short", "12345");
  const File file = File::open(directory / "short");
  std::array<std::byte, 4> buffer{};
  file.read_at(1, buffer);
  CHECK(std::to_integer<char>(buffer[0]) == '2');
  CHECK_THAT(refusal_of([&] { file.read_at(3, buffer); }),
             is_bad_input("short", "byte 5", "2 more expected"));
}

TEST_CASE("a file truncated or rewritten while it is open is detected", "[formats]") {
  const TemporaryDirectory directory;
  put_file(directory / "weights", "12345678");
  const File file = File::open(directory / "weights");
  CHECK_NOTHROW(file.check_unchanged());
  SECTION("truncated") {
    REQUIRE(::truncate((directory / "weights").c_str(), 4) == 0);
    std::array<std::byte, 8> buffer{};
    CHECK_THAT(refusal_of([&] { file.read_at(0, buffer); }), is_bad_input("weights", "truncated"));
  }
  SECTION("same size but another modification time") {
    const std::array<timespec, 2> times{{{1000, 0}, {1000, 0}}};
    REQUIRE(::utimensat(AT_FDCWD, (directory / "weights").c_str(), times.data(), 0) == 0);
  }
  CHECK_THAT(refusal_of([&] { file.check_unchanged(); }),
             is_bad_input("weights", "changed while it was being read"));
}

TEST_CASE("create never replaces a file or follows a link", "[formats]") {
  const TemporaryDirectory directory;
  put_file(directory / "there", "kept");
  std::filesystem::create_symlink("elsewhere", directory / "link");
  CHECK_THAT(refusal_of([&] { File::create(directory / "there"); }),
             is_environment_failure("there", "exists"));
  CHECK_THAT(refusal_of([&] { File::create(directory / "link"); }),
             is_environment_failure("link", "exists"));
  CHECK(bytes_of_file(directory / "there") == "kept");
}

// Every block has different bytes.
std::string varied_bytes() {
  std::string bytes;
  for (int i = 0; i < 100'000; ++i) {
    bytes.push_back(static_cast<char>(i * 7 + i / 251));
  }
  return bytes;
}

TEST_CASE("copy_from copies the requested range at any offset", "[formats]") {
  const TemporaryDirectory directory;
  const std::string bytes = varied_bytes();
  put_file(directory / "source", bytes);
  const File source = File::open(directory / "source");
  File target = File::create(directory / "target");
  target.copy_from(source, 12'345, 3, 54'321);
  target.copy_from(source, 0, 0, 3);
  target.sync_and_close();
  CHECK(bytes_of_file(directory / "target") == bytes.substr(0, 3) + bytes.substr(12'345, 54'321));
}

TEST_CASE("copy_from by whole blocks changes no bytes outside the range", "[formats]") {
  const TemporaryDirectory directory;
  const std::string bytes = varied_bytes();
  put_file(directory / "source", bytes);
  const File source = File::open(directory / "source");
  for (const std::size_t begin : {0, 100, 4096}) {
    for (const std::size_t length : {0, 3000, 4096, 20'000, 50'000}) {
      CAPTURE(begin, length);
      const auto path = directory / fmt::format("{}-{}", begin, length);
      File target = File::create(path);
      std::string expected(70'000, '.');
      target.write_at(0, std::as_bytes(std::span(expected)));
      target.copy_from(source, begin, begin + 2 * kSharedBlock, length);
      target.sync_and_close();
      expected.replace(begin + 2 * kSharedBlock, length, bytes, begin, length);
      CHECK((bytes_of_file(path) == expected));
    }
  }
}

TEST_CASE("copying more bytes than the source has is an error", "[formats]") {
  const TemporaryDirectory directory;
  put_file(directory / "source", "12345");
  const File source = File::open(directory / "source");
  File target = File::create(directory / "target");
  CHECK_THAT(refusal_of([&] { target.copy_from(source, 2, 0, 10); }),
             is_bad_input("source", "truncated"));
}

TEST_CASE("read_text refuses files larger than it was told to expect", "[formats]") {
  const TemporaryDirectory directory;
  put_file(directory / "text", "12345");
  CHECK(read_text(directory / "text", 5) == "12345");
  CHECK_THAT(refusal_of([&] { read_text(directory / "text", 4); }),
             is_bad_input("text", "5 bytes", "at most 4"));
}

TEST_CASE("read_text names git-LFS where it left a pointer in place of the file", "[formats]") {
  const TemporaryDirectory directory;
  put_file(directory / "vocab.txt",
           "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n");
  CHECK_THAT(refusal_of([&] { read_text(directory / "vocab.txt", 1000); }),
             is_bad_input("vocab.txt", "git-LFS", "git lfs pull"));
}

}  // namespace
}  // namespace regroup
