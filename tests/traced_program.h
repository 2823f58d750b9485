// The program under strace: counts its system calls and makes single calls fail.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tests/child_program.h"

namespace regroup {

/// Whether strace is installed and allowed (containers may forbid it).
bool can_trace();

/// A range of calls of one system call, counted from 1.
struct CallRange {
  int first = 0;
  int last = 0;
};

/// Runs the program and counts each of `calls` from its first mkdir on. Earlier calls belong to the
/// loader and to reading.
std::map<std::string, CallRange> count_calls(const std::vector<std::string>& arguments,
                                             const std::vector<std::string>& calls);

/// What happens to a system call: "signal=KILL", "error=ENOSPC".
struct Injection {
  std::string call;
  std::string fault;
  std::string when = "1+";  ///< "3": the third; "1+": all
};

/// Runs the program with this fault.
ProgramResult run_with_fault(const std::vector<std::string>& arguments, const Injection& injection);

}  // namespace regroup
