#include "tests/child_program.h"

#include <algorithm>
#include <array>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <spawn.h>
#include <stdexcept>
#include <sys/wait.h>
#include <unistd.h>
#include <utmp.h>

#include "tests/file_tree.h"

namespace regroup {

bool ProgramResult::one_line_of_error() const {
  return std::count(err.begin(), err.end(), '\n') == 1 && err.size() > 1 && err.back() == '\n';
}

namespace {

// Pointers to the strings and a null pointer, as exec needs them.
std::vector<char*> pointers_to(std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (std::string& word : words) {
    pointers.push_back(word.data());
  }
  pointers.push_back(nullptr);
  return pointers;
}

std::vector<std::string> command_of(const std::vector<std::string>& arguments) {
  std::vector<std::string> words{REGROUP_PROGRAM};
  words.insert(words.end(), arguments.begin(), arguments.end());
  return words;
}

int exit_code_of(int status) {
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

// Appends what can be read within a number of milliseconds.
void append_readable(int descriptor, int milliseconds, std::string& text) {
  std::array<char, 4096> part{};
  for (pollfd waiting{descriptor, POLLIN, 0}; ::poll(&waiting, 1, milliseconds) > 0;) {
    const ssize_t size = ::read(descriptor, part.data(), part.size());
    if (size <= 0) {
      return;
    }
    text.append(part.data(), static_cast<std::size_t>(size));
  }
}

}  // namespace

RunningProgram::RunningProgram(const std::vector<std::string>& arguments,
                               const std::vector<std::string>& under) {
  std::vector<std::string> words = command_of(arguments);
  words.insert(words.begin(), under.begin(), under.end());
  const std::vector<char*> argv = pointers_to(words);
  const std::string out = (streams_ / "out").string();
  const std::string err = (streams_ / "err").string();
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, out.c_str(), O_WRONLY | O_CREAT, 0600);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, err.c_str(), O_WRONLY | O_CREAT, 0600);
  const int fault =
      ::posix_spawnp(&process_, argv.front(), &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (fault != 0) {
    throw std::runtime_error("cannot run " + words.front() + ": " + std::strerror(fault));
  }
}

RunningProgram::~RunningProgram() {
  if (process_ > 0) {
    ::kill(process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
  }
}

void RunningProgram::send(int signal_number) const { ::kill(process_, signal_number); }

std::string RunningProgram::err_so_far() const { return bytes_of_file(streams_ / "err"); }

ProgramResult RunningProgram::wait() {
  int status = 0;
  if (::waitpid(process_, &status, 0) != process_) {
    throw std::runtime_error("the program cannot be waited for");
  }
  process_ = -1;
  return {exit_code_of(status), bytes_of_file(streams_ / "out"), bytes_of_file(streams_ / "err")};
}

ProgramResult run_program(const std::vector<std::string>& arguments,
                          const std::vector<std::string>& under) {
  return RunningProgram(arguments, under).wait();
}

bool program_computes() { return run_program({"--help"}).out.find("bench") != std::string::npos; }

ProgramResult run_on_terminal(const std::vector<std::string>& arguments, int columns,
                              const std::vector<std::string>& variables) {
  std::vector<std::string> words = command_of(arguments);
  std::vector<std::string> environment = variables;
  environment.emplace_back("TERM=xterm");  // an earlier TERM in `variables` takes precedence
  const std::vector<char*> argv = pointers_to(words);
  const std::vector<char*> envp = pointers_to(environment);
  const winsize size{24, static_cast<unsigned short>(columns), 0, 0};
  int reader = -1;
  int terminal = -1;
  if (::openpty(&reader, &terminal, nullptr, nullptr, &size) != 0) {
    throw std::runtime_error("no terminal can be made");
  }
  const pid_t process = ::fork();
  if (process == 0) {
    ::close(reader);
    ::login_tty(terminal);
    ::execve(REGROUP_PROGRAM, argv.data(), envp.data());
    ::_exit(127);
  }
  ProgramResult result;
  // The terminal stays open on this side until everything is read. A closed terminal may drop data.
  for (bool ended = process < 0; !ended;) {
    int status = 0;
    ended = ::waitpid(process, &status, WNOHANG) != 0;
    result.exit_code = exit_code_of(status);
    append_readable(reader, ended ? 0 : 10, result.out);
  }
  ::close(terminal);
  ::close(reader);
  return result;
}

}  // namespace regroup
