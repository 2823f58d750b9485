// Where LibTorch is looked for, which versions fit, and libraries that a program lacks.
#include "cli/shell/compute_program.h"

#include <cstdlib>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "tests/file_tree.h"
#include "tests/temporary_directory.h"

namespace regroup {
namespace {

namespace fs = std::filesystem;
using Catch::Matchers::ContainsSubstring;

fs::path put_wheel(const fs::path& folder, const std::string& version) {
  put_file(folder / "lib/libtorch.so", "");
  put_file(folder / "version.py", "from typing import Optional\n__version__ = '" + version + "'\n");
  return folder;
}

// LibTorch_ROOT for the time of a test.
class NamedRoot {
 public:
  explicit NamedRoot(const fs::path& folder) { ::setenv("LibTorch_ROOT", folder.c_str(), 1); }
  NamedRoot(const NamedRoot&) = delete;
  NamedRoot& operator=(const NamedRoot&) = delete;
  ~NamedRoot() { ::unsetenv("LibTorch_ROOT"); }
};

TEST_CASE("the version of LibTorch is read from a wheel and from an unpacked archive", "[cli]") {
  const TemporaryDirectory directory;
  CHECK(libtorch_version(put_wheel(directory / "wheel", "2.13.1+cu130")) == "2.13.1");
  put_file(directory / "zip/build-version", "2.11.0+cpu\n");
  CHECK(libtorch_version(directory / "zip") == "2.11.0");
  for (const char* text : {"", "__version__ = ''", "__version__ = 'x'", "__version__ = '2"}) {
    put_file(directory / "other/version.py", text);
    CHECK(libtorch_version(directory / "other").empty());
  }
  CHECK(libtorch_version(directory / "none").empty());
  CHECK(libtorch_interface("2.13.1") == "2.13");
  CHECK(libtorch_interface("2.13") == "2.13");
}

TEST_CASE("a LibTorch in the program's Python environment is used if its version fits", "[cli]") {
  const TemporaryDirectory prefix;
  CHECK(choose_libtorch(prefix.path(), "2.13.0").library_path.empty());
  const fs::path first = put_wheel(prefix / "lib/python3.10/site-packages/torch", "2.12.1");
  const LibTorchChoice other = choose_libtorch(prefix.path(), "2.13.0");
  CHECK(other.library_path.empty());
  CHECK(other.mismatch == first.string() + " is 2.12.1");
  CHECK_FALSE(other.named);
  const fs::path second = put_wheel(prefix / "lib/python3.11/dist-packages/torch", "2.13.2");
  put_file(second.parent_path() / "nvidia/cu13/lib/libcudart.so.13", "");
  const LibTorchChoice fitting = choose_libtorch(prefix.path(), "2.13.0");
  CHECK(fitting.mismatch.empty());
  CHECK(fitting.library_path ==
        (second / "lib").string() + ":" + (second.parent_path() / "nvidia/cu13/lib").string());
}

TEST_CASE("a virtual environment may see a LibTorch that is elsewhere", "[cli]") {
  const TemporaryDirectory directory;
  const fs::path torch = put_wheel(directory / "elsewhere/torch", "2.13.0");
  const fs::path prefix = directory / "env", python = prefix / "bin/python3";
  put_file(python, "#!/bin/sh\necho '" + torch.string() + "'\n");
  fs::permissions(python, fs::perms::owner_all);
  CHECK(torch_folders(prefix).empty());  // not a virtual environment: Python is not asked
  put_file(prefix / "pyvenv.cfg", "");
  CHECK(torch_folders(prefix) == std::vector{torch});
  put_file(python, "#!/bin/sh\necho broken\nexit 1\n");
  CHECK(torch_folders(prefix).empty());
}

TEST_CASE("a named LibTorch comes first and must fit", "[cli]") {
  const TemporaryDirectory prefix;
  put_wheel(prefix / "lib/python3.11/site-packages/torch", "2.13.0");
  const fs::path linked = put_wheel(prefix / "lib/regroup/torch", "2.13.1");
  CHECK(choose_libtorch(prefix.path(), "2.13.0").library_path == (linked / "lib").string());
  const fs::path old = put_wheel(prefix / "old", "2.11.0");
  {
    const NamedRoot root(old);
    const LibTorchChoice choice = choose_libtorch(prefix.path(), "2.13.0");
    CHECK(choice.named);
    CHECK(choice.mismatch == old.string() + " is 2.11.0");
  }
  const NamedRoot root(prefix / "none");  // it may have no version; the loader reports the rest
  const LibTorchChoice choice = choose_libtorch(prefix.path(), "2.13.0");
  CHECK(choice.named);
  CHECK(choice.mismatch.empty());
}

TEST_CASE("what to type for a missing LibTorch depends on the installation", "[cli]") {
  const TemporaryDirectory prefix;
  CHECK_THAT(libtorch_remedy(prefix.path(), "2.13.0"),
             ContainsSubstring("'torch==2.13.*'") && ContainsSubstring("set LibTorch_ROOT") &&
                 ContainsSubstring((prefix / "lib/regroup/torch").string()));
  put_file(prefix / "bin/python3", "");
  CHECK(libtorch_remedy(prefix.path(), "2.13.0") ==
        (prefix / "bin/python3").string() + " -m pip install 'torch==2.13.*'");
  put_file(prefix / "my env/bin/python3", "");
  CHECK(libtorch_remedy(prefix / "my env", "2.13.0") ==
        "'" + (prefix / "my env/bin/python3").string() + "' -m pip install 'torch==2.13.*'");
  CHECK_THAT(libtorch_remedy("/usr", "2.13.0"), ContainsSubstring("set LibTorch_ROOT"));
}

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
