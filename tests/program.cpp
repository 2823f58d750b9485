#include "tests/program.h"

#include <algorithm>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <spawn.h>
#include <stdexcept>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/file_tree.h"

namespace regroup {

bool ProgramResult::one_line_of_error() const {
  return std::count(err.begin(), err.end(), '\n') == 1 && err.size() > 1 && err.back() == '\n';
}

RunningProgram::RunningProgram(const std::vector<std::string>& arguments) {
  std::vector<std::string> words{REGROUP_PROGRAM};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) {
    argv.push_back(word.data());
  }
  argv.push_back(nullptr);

  const std::string out = (streams_ / "out").string();
  const std::string err = (streams_ / "err").string();
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, out.c_str(), O_WRONLY | O_CREAT, 0600);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, err.c_str(), O_WRONLY | O_CREAT, 0600);
  const int fault =
      ::posix_spawn(&process_, REGROUP_PROGRAM, &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (fault != 0) {
    throw std::runtime_error(std::string("cannot run " REGROUP_PROGRAM ": ") +
                             std::strerror(fault));
  }
}

RunningProgram::~RunningProgram() {
  if (process_ > 0) {
    ::kill(process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
  }
}

void RunningProgram::send(int signal_number) const { ::kill(process_, signal_number); }

ProgramResult RunningProgram::wait() {
  int status = 0;
  if (::waitpid(process_, &status, 0) != process_) {
    throw std::runtime_error("the program cannot be waited for");
  }
  process_ = -1;
  return {WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status),
          bytes_of_file(streams_ / "out"), bytes_of_file(streams_ / "err")};
}

ProgramResult run_program(const std::vector<std::string>& arguments) {
  return RunningProgram(arguments).wait();
}

}  // namespace regroup
