// Runs the real program as a child process.
#pragma once

#include <filesystem>
#include <string>
#include <sys/types.h>
#include <vector>

#include "formats/base/json.h"
#include "tests/temporary_directory.h"

namespace regroup {

/// Exit codes, as docs/start.md lists them.
inline constexpr int kExitUsage = 2, kExitBadInput = 3, kExitEnvironment = 4, kExitStateSaved = 75;

struct ProgramResult {
  int exit_code = -1;  ///< 128 + n if signal n ended it
  std::string out;
  std::string err;

  /// stdout as one JSON document.
  Json json() const { return Json::parse(out); }
  /// Whether stderr is exactly one line.
  bool one_line_of_error() const;
};

/// A running child process.
class RunningProgram {
 public:
  /// `under` is a program with arguments that starts regroup ("strace -f").
  explicit RunningProgram(const std::vector<std::string>& arguments,
                          const std::vector<std::string>& under = {});
  RunningProgram(const RunningProgram&) = delete;
  RunningProgram& operator=(const RunningProgram&) = delete;
  ~RunningProgram();

  void send(int signal_number) const;
  /// What it has written to stderr so far.
  std::string err_so_far() const;
  ProgramResult wait();

 private:
  TemporaryDirectory streams_;
  pid_t process_ = -1;
};

/// Runs regroup to its end with empty stdin and separate stdout and stderr.
ProgramResult run_program(const std::vector<std::string>& arguments,
                          const std::vector<std::string>& under = {});

/// Whether the program has the commands that need LibTorch.
bool program_computes();

/// The same as run_program() on a terminal with `columns` columns: everything written to both
/// streams, and the exit code. `variables` ("NO_COLOR=1") are added to the environment.
ProgramResult run_on_terminal(const std::vector<std::string>& arguments, int columns,
                              const std::vector<std::string>& variables = {});

}  // namespace regroup
