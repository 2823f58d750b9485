#include "cli/process/missing_library.h"

#include <array>
#include <fcntl.h>
#include <spawn.h>
#include <string_view>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace regroup {
namespace {

// The loader's list of the program's libraries. As ldd does, this makes the loader print the list
// and not run the program.
std::string loader_list(const std::filesystem::path& program) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
    return "";
  }
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  std::string name = program.string(), listing = "LD_TRACE_LOADED_OBJECTS=1";
  std::vector<char*> words{name.data(), nullptr}, variables{listing.data()};
  for (char** variable = environ; *variable != nullptr; ++variable) {
    variables.push_back(*variable);
  }
  variables.push_back(nullptr);
  pid_t child = -1;
  const bool started =
      ::posix_spawn(&child, name.c_str(), &actions, nullptr, words.data(), variables.data()) == 0;
  posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  std::string text;
  std::array<char, 4096> part{};
  for (ssize_t size = 1; started && (size = ::read(ends[0], part.data(), part.size())) > 0;) {
    text.append(part.data(), static_cast<std::size_t>(size));
  }
  ::close(ends[0]);
  if (started) {
    ::waitpid(child, nullptr, 0);
  }
  return text;
}

}  // namespace

std::string missing_library(const std::filesystem::path& program) {
  constexpr std::string_view kMissing = " => not found";
  const std::string list = loader_list(program);
  const std::size_t end = list.find(kMissing);
  if (end == list.npos) {
    return "";
  }
  const std::size_t begin = list.find_last_of("\t\n ", end - 1) + 1;  // 0 if none precedes it
  return list.substr(begin, end - begin);
}

}  // namespace regroup
