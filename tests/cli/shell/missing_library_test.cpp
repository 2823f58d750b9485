// Libraries that a program lacks.
#include "cli/shell/missing_library.h"

#include <catch2/catch_test_macros.hpp>

#include "tests/file_tree.h"
#include "tests/temporary_directory.h"

namespace regroup {
namespace {

namespace fs = std::filesystem;

TEST_CASE("a program with all its libraries misses none", "[cli]") {
  CHECK(missing_library(REGROUP_PROGRAM).empty());
}

TEST_CASE("the first library that the loader does not find is named", "[cli]") {
  const TemporaryDirectory directory;
  const std::string real = "libstdc++.so.6", missing = "libstdc++.so.X";
  std::string program = bytes_of_file(REGROUP_PROGRAM);
  const std::string entry = real + '\0';
  const std::size_t at = program.find(entry);
  REQUIRE(at != std::string::npos);
  program.replace(at, missing.size(), missing);
  put_file(directory / "program", program);
  fs::permissions(directory / "program", fs::perms::owner_all);
  CHECK(missing_library(directory / "program") == missing);
}

TEST_CASE("what cannot be run misses no library", "[cli]") {
  const TemporaryDirectory directory;
  CHECK(missing_library(directory / "none").empty());
  put_file(directory / "text", "not a program");
  fs::permissions(directory / "text", fs::perms::owner_all);
  CHECK(missing_library(directory / "text").empty());
}

}  // namespace
}  // namespace regroup
