#include "tests/traced_program.h"

#include <algorithm>
#include <sstream>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tests/file_tree.h"

namespace regroup {
namespace {

// strace writes its output to a file. LeakSanitizer cannot run under strace.
std::vector<std::string> strace_to(const std::string& log, const std::string& calls) {
  return {"strace",        "-f", "-qq", "-o", log, "-E", "ASAN_OPTIONS=detect_leaks=0", "-e",
          "trace=" + calls};
}

// The calls of a log of strace's, in their order.
std::vector<std::string> calls_in(const std::string& log) {
  std::vector<std::string> calls;
  std::istringstream lines(bytes_of_file(log));
  for (std::string line; std::getline(lines, line);) {
    const std::size_t name = line.find_first_not_of("0123456789 ");  // after the process id
    const std::size_t end = line.find('(', name);
    if (end != std::string::npos) {
      calls.push_back(line.substr(name, end - name));
    }
  }
  return calls;
}

}  // namespace

bool can_trace() {
  try {
    return run_program({"--version"}, strace_to("/dev/null", "fsync")).exit_code == 0;
  } catch (const std::runtime_error&) {
    return false;
  }
}

std::map<std::string, CallRange> count_calls(const std::vector<std::string>& arguments,
                                             const std::vector<std::string>& calls) {
  const TemporaryDirectory directory;
  const std::string log = (directory / "log").string();
  const ProgramResult result =
      run_program(arguments, strace_to(log, fmt::format("{}", fmt::join(calls, ","))));
  if (result.exit_code != 0) {
    throw std::runtime_error("under strace: " + result.err);
  }
  std::map<std::string, int> counts;
  std::map<std::string, CallRange> ranges;
  for (const std::string& call : calls_in(log)) {
    const int number = ++counts[call];
    if (counts.contains("mkdir")) {
      ranges.try_emplace(call, CallRange{number, number}).first->second.last = number;
    }
  }
  return ranges;
}

FaultyRun run_with_fault(const std::vector<std::string>& arguments, const Injection& injection) {
  const TemporaryDirectory directory;
  const std::string log = (directory / "log").string();
  std::vector<std::string> under = strace_to(log, injection.call);
  under.insert(under.end(), {"-e", fmt::format("inject={}:{}:when={}", injection.call,
                                               injection.fault, injection.when)});
  FaultyRun run{run_program(arguments, under)};
  run.calls = static_cast<int>(std::ranges::count(calls_in(log), injection.call));
  return run;
}

}  // namespace regroup
