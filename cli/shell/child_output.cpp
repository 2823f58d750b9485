#include "cli/shell/child_output.h"

#include <array>
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

namespace regroup {
namespace {

// execv() and its relatives want arrays that end with a null pointer.
std::vector<char*> pointers_to(std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (std::string& word : words) {
    pointers.push_back(word.data());
  }
  return pointers;
}

std::string read_all(int descriptor) {
  constexpr std::size_t kMostBytes = 1U << 20;
  std::string text;
  std::array<char, 4096> part{};
  for (ssize_t size = 1;
       text.size() < kMostBytes && (size = ::read(descriptor, part.data(), part.size())) > 0;) {
    text.append(part.data(), static_cast<std::size_t>(size));
  }
  return text;
}

}  // namespace

std::string output_of(std::vector<std::string> words, std::vector<std::string> variables) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
    return "";
  }
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  std::vector<char*> arguments = pointers_to(words), environment = pointers_to(variables);
  for (char** variable = environ; *variable != nullptr; ++variable) {
    environment.push_back(*variable);
  }
  arguments.push_back(nullptr);
  environment.push_back(nullptr);
  pid_t child = -1;
  const bool started = ::posix_spawn(&child, arguments.front(), &actions, nullptr, arguments.data(),
                                     environment.data()) == 0;
  posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  const std::string text = started ? read_all(ends[0]) : "";
  ::close(ends[0]);
  if (started) {
    ::waitpid(child, nullptr, 0);
  }
  return text;
}

}  // namespace regroup
