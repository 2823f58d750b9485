// The program under strace: its output system calls counted, and made to fail one by one.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tests/child_program.h"

namespace regroup {

/// Whether strace is installed and may trace (containers may forbid it).
bool can_trace();

/// Which calls of one system call, counted from 1.
struct CallRange {
  int first = 0;
  int last = 0;
};

/// Runs it and counts its calls of each of those system calls, from its first mkdir on: what comes
/// before is the loader and reading.
std::map<std::string, CallRange> count_calls(const std::vector<std::string>& arguments,
                                             const std::vector<std::string>& calls);

/// What happens to a system call: "signal=KILL", "error=ENOSPC".
struct Injection {
  std::string call;
  std::string fault;
  std::string when = "1+";  ///< "3": the third; "1+": all
};

/// Runs it so.
ProgramResult run_with_fault(const std::vector<std::string>& arguments, const Injection& injection);

}  // namespace regroup
