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

/// What became of a program with a fault.
struct FaultyRun : ProgramResult {
  int calls = 0;  ///< how often it made the call, from its start on
};

/// Runs the program with this fault. Before `main`, AddressSanitizer reads /proc/self/maps into a
/// buffer that it doubles until all fits, and opens and closes the file each time: where the
/// addresses of a run take a few bytes less, it has fewer calls than count_calls() found.
FaultyRun run_with_fault(const std::vector<std::string>& arguments, const Injection& injection);

}  // namespace regroup
