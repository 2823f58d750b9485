// Kills and failing system calls at every write of a conversion. The result is complete or absent,
// the source is unchanged, and the same command then gives the same result.
#include <memory>
#include <set>

#include <catch2/catch_test_macros.hpp>

#include "tests/child_program.h"
#include "tests/file_tree.h"
#include "tests/tiny_models.h"
#include "tests/traced_program.h"

namespace regroup {
namespace {

namespace fs = std::filesystem;

using Tree = std::map<std::string, std::string>;

// System calls that change the disk or can report that a change failed.
const std::vector<std::string> kWriting{
    "pwrite64",        "write",    "copy_file_range", "splice",    "ioctl",  "fallocate",
    "sync_file_range", "fsync",    "ftruncate",       "close",     "openat", "mkdir",
    "rmdir",           "unlinkat", "unlink",          "renameat2", "rename"};

// Their failures have no effect: there is a fallback, or nothing was written.
const std::set<std::string> kForgiven{"close", "splice", "fallocate"};

constexpr int kKilled = 128 + 9;

// A sharded model with a companion, and the expected result of its conversion.
class Scene {
 public:
  Scene() {
    // Wide enough for the MLP to be copied by blocks.
    put_sharded_model(path("source"), tiny_llama({.layers = 1, .intermediate_size = 2000}), 6);
    put_file(path("source/tokenizer.json"), "{}");
    source_ = tree_of(path("source"));
    REQUIRE(run_program(command("expected")).exit_code == 0);
    expected_ = tree_of(path("expected"));
    fs::rename(path("expected"), path("kept"));
    fs::create_directory(path("out"));
  }

  fs::path path(const fs::path& name) const { return directory_ / name; }

  // On one thread, so that the n-th call is always the same.
  std::vector<std::string> command(const fs::path& destination) const {
    return {"convert",
            path("source").string(),
            path(destination).string(),
            "--kv-heads",
            "4",
            "--max-shard-size",
            "3000B",
            "--threads",
            "1",
            "--quiet"};
  }

  std::map<std::string, CallRange> calls() const {
    const auto counts = count_calls(command("out/result"), kWriting);
    fs::remove_all(path("out/result"));
    return counts;
  }

  bool has_result() const { return fs::exists(path("out/result")); }
  bool is_complete() const { return tree_of(path("out/result")) == expected_; }
  bool source_untouched() const { return tree_of(path("source")) == source_; }
  bool nothing_left() const { return fs::is_empty(path("out")); }
  void clear() const {
    fs::remove_all(path("out"));
    fs::create_directory(path("out"));
  }

  // The result is complete or absent. If it is absent, another run creates it and leaves no other
  // files.
  void check_survived() const {
    if (has_result()) {
      CHECK(is_complete());
    } else {
      const ProgramResult again = run_program(command("out/result"));
      CAPTURE(again.err);
      CHECK(again.exit_code == 0);
      CHECK(is_complete());
      CHECK(std::distance(fs::directory_iterator(path("out")), {}) == 1);
    }
    CHECK(source_untouched());
    clear();
  }

 private:
  TemporaryDirectory directory_;
  Tree source_;
  Tree expected_;
};

TEST_CASE("a conversion killed at any writing system call leaves the whole result or nothing",
          "[end_to_end]") {
  if (!can_trace()) {
    SKIP("strace is not installed, or may not trace here");
  }
  const Scene scene;
  int killed = 0;
  for (const auto& [call, range] : scene.calls()) {
    for (int n = range.first; n <= range.last; ++n) {
      CAPTURE(call, n);
      const FaultyRun result =
          run_with_fault(scene.command("out/result"), {call, "signal=KILL", std::to_string(n)});
      CHECK((result.exit_code == kKilled || (result.exit_code == 0 && result.calls < n)));
      killed += result.exit_code == kKilled ? 1 : 0;
      scene.check_survived();
    }
  }
  CHECK(killed > 50);
}

TEST_CASE("a full or failing device at any write leaves the whole result or nothing",
          "[end_to_end]") {
  if (!can_trace()) {
    SKIP("strace is not installed, or may not trace here");
  }
  const Scene scene;
  const auto counts = scene.calls();
  int failed = 0;
  for (const std::string call : {"pwrite64", "copy_file_range", "splice", "fallocate", "fsync",
                                 "close", "renameat2", "mkdir"}) {
    if (!counts.contains(call)) {  // some filesystems do not support direct writes
      CHECK(kForgiven.contains(call));
      continue;
    }
    for (int n = counts.at(call).first; n <= counts.at(call).last; ++n) {
      for (const char* fault : {"error=ENOSPC", "error=EIO"}) {
        CAPTURE(call, n, fault);
        const ProgramResult result =
            run_with_fault(scene.command("out/result"), {call, fault, std::to_string(n)});
        CAPTURE(result.err);
        if (result.exit_code == 0) {
          CHECK(kForgiven.contains(call));
          CHECK(scene.has_result());
        } else {
          CHECK(result.exit_code == kExitEnvironment);
          CHECK(result.one_line_of_error());
          CHECK((scene.has_result() || scene.nothing_left()));
          ++failed;
        }
        scene.check_survived();
      }
    }
  }
  CHECK(failed > 50);
}

TEST_CASE("results are the same if the kernel cannot copy or interrupts calls", "[end_to_end]") {
  if (!can_trace()) {
    SKIP("strace is not installed, or may not trace here");
  }
  const Scene scene;
  for (const auto& [call, fault, when] : {std::tuple{"copy_file_range", "error=EXDEV", "1+"},
                                          {"copy_file_range", "error=ENOSYS", "1+"},
                                          {"copy_file_range", "error=EOPNOTSUPP", "1+"},
                                          {"copy_file_range", "error=EXDEV", "3"},
                                          {"copy_file_range", "error=EINTR", "1+2"},
                                          {"splice", "error=EINVAL", "1+"},
                                          {"splice", "error=EINTR", "2"},
                                          {"fallocate", "error=EOPNOTSUPP", "1+"},
                                          {"pwrite64", "error=EINTR", "1+2"},
                                          {"sync_file_range", "error=EIO", "1+"},
                                          {"fadvise64", "error=EINVAL", "1+"},
                                          {"renameat2", "error=EINVAL", "1+"}}) {
    CAPTURE(call, fault, when);
    const ProgramResult result = run_with_fault(scene.command("out/result"), {call, fault, when});
    CAPTURE(result.err);
    CHECK(result.exit_code == 0);
    REQUIRE(scene.has_result());
    scene.check_survived();
  }
}

TEST_CASE("a limit on file sizes is an environment failure", "[end_to_end]") {
  const Scene scene;
  const ProgramResult result =
      run_program(scene.command("out/result"), {"prlimit", "--fsize=2048"});
  CAPTURE(result.err);
  CHECK(result.exit_code == kExitEnvironment);
  CHECK(result.one_line_of_error());
  CHECK(scene.nothing_left());
}

TEST_CASE("of simultaneous runs with one destination one succeeds and the others report it",
          "[end_to_end]") {
  const Scene scene;
  std::vector<std::unique_ptr<RunningProgram>> runs;
  for (int i = 0; i < 8; ++i) {
    runs.push_back(std::make_unique<RunningProgram>(scene.command("out/result")));
  }
  int won = 0;
  for (const auto& run : runs) {
    const ProgramResult result = run->wait();
    CAPTURE(result.err);
    if (result.exit_code == 0) {
      ++won;
    } else {
      CHECK((result.exit_code == 2 || result.exit_code == kExitEnvironment));
      CHECK(result.one_line_of_error());
      CHECK(result.err.find("result") != std::string::npos);
    }
  }
  CHECK(won == 1);
  CHECK(std::distance(fs::directory_iterator(scene.path("out")), {}) == 1);
  scene.check_survived();
}

}  // namespace
}  // namespace regroup
