// Disks that are full, and system calls that transfer less than requested.
#include <catch2/catch_test_macros.hpp>

#include "tests/child_program.h"
#include "tests/file_tree.h"
#include "tests/tiny_models.h"

namespace regroup {
namespace {

namespace fs = std::filesystem;

// A sharded model with an MLP wide enough to be copied by blocks.
void put_source(const fs::path& source) {
  put_sharded_model(source, tiny_llama({.layers = 1, .intermediate_size = 2000}), 6);
}

std::vector<std::string> conversion(const fs::path& source, const fs::path& destination) {
  return {"convert", source.string(), destination.string(), "--kv-heads", "4", "--quiet"};
}

TEST_CASE("results are the same if calls transfer half of what is requested", "[end_to_end]") {
  const std::string library = REGROUP_SHORT_TRANSFERS;
  if (library.empty()) {
    SKIP("a library cannot be preloaded into a program with sanitizers");
  }
  const TemporaryDirectory directory;
  const fs::path source = directory / "source";
  put_source(source);
  REQUIRE(run_program(conversion(source, directory / "expected")).exit_code == 0);
  const fs::path counts = directory / "counts";
  const ProgramResult result =
      run_program(conversion(source, directory / "result"),
                  {"env", "LD_PRELOAD=" + library, "SHORT_TRANSFERS=" + counts.string()});
  CAPTURE(result.err);
  REQUIRE(result.exit_code == 0);
  CHECK(tree_of(directory / "result") == tree_of(directory / "expected"));
  const Json shortened = Json::parse(bytes_of_file(counts));
  CHECK(shortened["reads"] > 20);
  CHECK(shortened["writes"] > 20);
  CHECK(shortened["copies"] > 20);
}

// Runs the program where `disk` is a temporary filesystem of this size. Files that are left on it
// are listed on stdout.
ProgramResult run_on_disk(const std::vector<std::string>& arguments, const fs::path& disk,
                          const std::string& size) {
  return run_program(arguments, {"unshare", "-Urm", "sh", "-c",
                                 R"(mount -t tmpfs -o size="$1" none "$0" || exit 77
                         shift; "$@"; status=$?; ls -A "$0"; exit $status)",
                                 disk.string(), size});
}

bool can_mount(const fs::path& disk) {
  try {
    return run_on_disk({"--version"}, disk, "64k").exit_code == 0;
  } catch (const std::runtime_error&) {
    return false;
  }
}

TEST_CASE("a disk without room for the weights is refused and one that fills up leaves no files",
          "[end_to_end]") {
  const TemporaryDirectory directory;
  const fs::path disk = directory / "disk";
  fs::create_directory(disk);
  if (!can_mount(disk)) {
    SKIP("no filesystem may be mounted here");
  }
  const fs::path source = directory / "source";
  put_source(source);
  const auto command = conversion(source, disk / "result");

  const ProgramResult enough = run_on_disk(command, disk, "4m");
  CHECK(enough.exit_code == 0);
  CHECK(enough.out.ends_with("\nresult\n"));

  const ProgramResult small = run_on_disk(command, disk, "64k");
  CHECK(small.exit_code == kExitEnvironment);
  CHECK(small.one_line_of_error());
  CHECK(small.err.find("bytes free") != std::string::npos);
  CHECK(small.err.find(".partial-") == std::string::npos);
  CHECK(small.out.empty());

  if (program_computes()) {  // and that before a text is worked on
    put_file(directory / "text.txt", "a text");
    auto with_text = command;
    with_text.insert(with_text.end(), {"--text", (directory / "text.txt").string()});
    const ProgramResult early = run_on_disk(with_text, disk, "64k");
    CAPTURE(early.err);
    CHECK(early.exit_code == kExitEnvironment);
    CHECK(early.one_line_of_error());
    CHECK(early.err.find("bytes free") != std::string::npos);
  }

  // The check in advance covers the weights but not the other files.
  put_file(source / "tokenizer.json", std::string(4U << 20, 'x'));
  const ProgramResult filled = run_on_disk(command, disk, "4m");
  CAPTURE(filled.err);
  CHECK(filled.exit_code == kExitEnvironment);
  CHECK(filled.one_line_of_error());
  CHECK(filled.err.find("No space left") != std::string::npos);
  CHECK(filled.out.empty());
}

}  // namespace
}  // namespace regroup
