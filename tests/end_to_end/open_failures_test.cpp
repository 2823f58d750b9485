// Files that exist but cannot be opened: an environment failure and not a fault of the model.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "tests/child_program.h"
#include "tests/file_tree.h"
#include "tests/temporary_directory.h"
#include "tests/tiny_models.h"
#include "tests/traced_program.h"

namespace regroup {
namespace {

using Catch::Matchers::ContainsSubstring;

TEST_CASE("too many open files are reported with the shard that was not opened", "[end_to_end]") {
#ifdef __SANITIZE_ADDRESS__
  SKIP("the sanitizers open pipes to check an object's type, which must not fail here");
#endif
  const ProgramResult result = run_program({"inspect", golden("llama_sharded").string()},
                                           {"sh", "-c", "ulimit -n 8; exec \"$0\" \"$@\""});
  CHECK(result.exit_code == kExitEnvironment);
  CHECK(result.one_line_of_error());
  CHECK_THAT(result.err,
             ContainsSubstring("of-00008.safetensors: cannot open: Too many open files") &&
                 ContainsSubstring("ulimit -n"));
}

TEST_CASE("nothing is left where too few files can be open", "[end_to_end]") {
#ifdef __SANITIZE_ADDRESS__
  SKIP("the sanitizers open pipes to check an object's type, which must not fail here");
#endif
  for (int most = 6; most < 14; ++most) {  // whichever file is the first that cannot be opened
    CAPTURE(most);
    const TemporaryDirectory directory;
    const ProgramResult result = run_program(
        {"convert", golden("llama").string(), (directory / "out").string(), "--kv-heads", "2"},
        {"sh", "-c", "ulimit -n " + std::to_string(most) + "; exec \"$0\" \"$@\""});
    CAPTURE(result.err);
    if (result.exit_code != 0) {
      CHECK(tree_of(directory.path()).empty());
    }
  }
}

TEST_CASE("a file without read permission is an environment failure", "[end_to_end]") {
  if (!can_trace()) {
    SKIP("strace is not installed, or may not trace");
  }
  const TemporaryDirectory directory;
  const auto model = put_model(directory / "model", tiny_llama());
  for (const char* name : {"config.json", "model.safetensors"}) {
    CAPTURE(name);
    const std::string file = (model / name).string();
    const ProgramResult result =
        run_program({"inspect", model.string()},
                    {"strace", "-f", "-qq", "-o", "/dev/null", "-E", "ASAN_OPTIONS=detect_leaks=0",
                     "-P", file, "-e", "trace=openat", "-e", "inject=openat:error=EACCES"});
    CHECK(result.exit_code == kExitEnvironment);
    CHECK(result.one_line_of_error());
    CHECK_THAT(result.err, ContainsSubstring(file + ": cannot open: Permission denied"));
  }
}

TEST_CASE("a wrong path is bad input", "[end_to_end]") {
  const TemporaryDirectory directory;
  put_file(directory / "file", "text");
  std::filesystem::create_symlink("loop", directory / "loop");
  for (const char* path : {"nothing", "file/below", "loop"}) {
    CAPTURE(path);
    const ProgramResult result = run_program({"inspect", (directory / path).string()});
    CHECK(result.exit_code == kExitBadInput);
    CHECK(result.one_line_of_error());
  }
}

}  // namespace
}  // namespace regroup
