// Standard streams that are closed, full or not read.
#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <iterator>
#include <spawn.h>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

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

// The program's exit code for these words in a shell.
int run_in_shell(const std::string& words) {
  const std::string command = "'" + std::string(REGROUP_PROGRAM) + "' " + words;
  return WEXITSTATUS(std::system(command.c_str()));
}

TEST_CASE("unwritable output is an environment failure in every command", "[end_to_end]") {
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
  if (program_computes()) {
    std::string tokens;  // 16 bits per token, all within the vocabulary
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

TEST_CASE("the exit code does not change if stderr is not writable", "[end_to_end]") {
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

TEST_CASE("output files never replace closed streams", "[end_to_end]") {
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

// The wait status of the program when its standard output is a pipe that nobody reads any more. Its
// messages go to the file `errors`.
int status_with_closed_pipe(std::vector<std::string> words, const fs::path& errors) {
  std::array<int, 2> ends{};
  REQUIRE(::pipe2(ends.data(), O_CLOEXEC) == 0);
  ::close(ends[0]);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, errors.c_str(),
                                   O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawnattr_t attributes;  // SIGPIPE ends a program that does not ignore it
  posix_spawnattr_init(&attributes);
  sigset_t pipe_signal;
  sigemptyset(&pipe_signal);
  sigaddset(&pipe_signal, SIGPIPE);
  posix_spawnattr_setsigdefault(&attributes, &pipe_signal);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
  words.insert(words.begin(), REGROUP_PROGRAM);
  std::vector<char*> arguments;
  std::transform(words.begin(), words.end(), std::back_inserter(arguments),
                 [](std::string& word) { return word.data(); });
  arguments.push_back(nullptr);
  pid_t child = -1;
  const int fault =
      ::posix_spawn(&child, REGROUP_PROGRAM, &actions, &attributes, arguments.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  REQUIRE(fault == 0);
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  return status;
}

TEST_CASE("output to a closed pipe ends the program quietly, as in | head", "[end_to_end]") {
  const TemporaryDirectory directory;
  const std::string model = golden("llama").string();
  for (const std::vector<std::string>& words : {std::vector<std::string>{"manual"},
                                                {"--help"},
                                                {"inspect", model},
                                                {"inspect", "--json", model}}) {
    CAPTURE(words);
    const int status = status_with_closed_pipe(words, directory / "err");
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 128 + SIGPIPE);
    CHECK(bytes_of_file(directory / "err").empty());
  }
}

}  // namespace
}  // namespace regroup
