// Streams that are closed, full or read by nobody.
#include <cstdlib>
#include <string>
#include <sys/wait.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "tests/child_program.h"
#include "tests/file_tree.h"
#include "tests/temporary_directory.h"

namespace regroup {
namespace {

namespace fs = std::filesystem;
using Catch::Matchers::ContainsSubstring;

// The exit code of the program with these words, as a shell takes them.
int run_in_shell(const std::string& words) {
  const std::string command = "'" + std::string(REGROUP_PROGRAM) + "' " + words;
  return WEXITSTATUS(std::system(command.c_str()));
}

bool computes() { return run_program({"--help"}).out.find("bench") != std::string::npos; }

TEST_CASE("output that cannot be written is the environment's failure in every command",
          "[end_to_end]") {
  const TemporaryDirectory directory;
  const std::string model = "'" + golden("llama").string() + "'";
  const std::string errors = "2> '" + (directory / "err").string() + "'";
  std::vector<std::string> commands{
      "--help",
      "--version",
      "convert --help",
      "help",
      "help inspect",
      "inspect " + model,
      "plan " + model,
      "completions bash",
      "manual",
      "diff " + model + " " + model,
      "inspect --json " + model,
      "convert --dry-run " + model + " '" + (directory / "x").string() + "' --kv-heads 1"};
  if (computes()) {
    std::string tokens;  // of 16 bits each, all within the vocabulary
    for (int i = 0; i < 200; ++i) {
      tokens += {'\1', '\0'};
    }
    put_file(directory / "tokens", tokens);
    const std::string data = " --data '" + (directory / "tokens").string() + "'";
    commands.insert(commands.end(),
                    {"eval " + model + data + " --context 10", "eval --help", "calibrate --help",
                     "bench decode --help",
                     "uptrain " + model + data + " --dry-run --steps 1 --context 10 -o '" +
                         (directory / "y").string() + "'"});
  }
  for (const std::string& command : commands) {
    CAPTURE(command);
    CHECK(run_in_shell(command + " > /dev/full " + errors) == kExitEnvironment);
    CHECK_THAT(bytes_of_file(directory / "err"), ContainsSubstring("standard output"));
    CHECK(run_in_shell(command + " >&- " + errors) == kExitEnvironment);
    CHECK_THAT(bytes_of_file(directory / "err"), ContainsSubstring("standard output"));
  }
}

TEST_CASE("an exit code stays what it is where stderr takes nothing", "[end_to_end]") {
  const TemporaryDirectory directory;
  const std::string none = "'" + (directory / "none").string() + "'";
  for (const char* stream : {"2> /dev/full", "2>&-", "2>&- >&- <&-"}) {
    CAPTURE(stream);
    CHECK(run_in_shell("inspect " + none + " " + stream) == kExitBadInput);
    CHECK(run_in_shell(std::string("inspect --no-such-option ") + stream) == 2);
    CHECK(run_in_shell(std::string("frobnicate ") + stream) == 2);
  }
  CHECK(run_in_shell("inspect -v '" + golden("llama").string() + "' > /dev/null 2> /dev/full") ==
        0);
}

TEST_CASE("no file gets the number of a closed stream", "[end_to_end]") {
  const TemporaryDirectory directory;
  const std::string model = "'" + golden("llama").string() + "'";
  const auto path = [&](const char* name) { return "'" + (directory / name).string() + "'"; };
  REQUIRE(run_in_shell("-q convert " + model + " " + path("plain") + " --kv-heads 1 > /dev/null") ==
          0);
  CHECK(run_in_shell("-v convert " + model + " " + path("closed") + " --kv-heads 1 <&- >&- 2>&-") ==
        kExitEnvironment);
  const auto written = [&](const char* name) {
    return bytes_of_file(directory / name / "model.safetensors");
  };
  CHECK(written("closed") == written("plain"));
}

TEST_CASE("a reader that goes away is told as output that was not written", "[end_to_end]") {
  const TemporaryDirectory directory;
  const std::string out = (directory / "code").string();
  const std::string command = "{ '" + std::string(REGROUP_PROGRAM) +
                              "' manual 2> /dev/null; echo $? > '" + out + "'; } | true";
  REQUIRE(std::system(command.c_str()) == 0);
  // Written before the reader left, or not at all.
  const std::string code = bytes_of_file(out);
  CHECK((code == "0\n" || code == "4\n"));
}

}  // namespace
}  // namespace regroup
