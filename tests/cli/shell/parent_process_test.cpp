// cli/shell/standard_streams.h
#include <array>
#include <csignal>
#include <cstdlib>
#include <string>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>

#include "cli/shell/standard_streams.h"

namespace regroup {
namespace {

// Ends its parent and waits for the request to stop: "+" if it comes, else "-".
[[noreturn]] void await_stop(int result, pid_t named) {
  ::setenv("REGROUP_PARENT", std::to_string(named).c_str(), 1);
  const pid_t parent = ::getppid();
  stop_with_parent();
  ::kill(parent, SIGKILL);
  for (int waits = named == parent ? 1000 : 10; waits > 0 && !interrupt_requested(); --waits) {
    ::usleep(10'000);
  }
  if (interrupt_requested()) {
    std::raise(SIGUSR1);  // as for a second thread of the parent
  }
  const bool stopped = interrupt_requested() && interrupting_signal() == SIGTERM;
  const ssize_t written = ::write(result, stopped ? "+" : "-", 1);
  ::_exit(written == 1 ? 0 : 1);
}

// A process whose child kills it. What await_stop() found in the child.
std::string result_for(bool named) {
  std::array<int, 2> ends{};
  REQUIRE(::pipe(ends.data()) == 0);
  const pid_t parent = ::fork();
  REQUIRE(parent != -1);
  if (parent == 0) {
    if (::fork() == 0) {
      await_stop(ends[1], named ? ::getppid() : 1);
    }
    for (;;) {
      ::pause();
    }
  }
  ::close(ends[1]);
  std::string result(1, ' ');
  CHECK(::read(ends[0], result.data(), 1) == 1);
  ::close(ends[0]);
  CHECK(::waitpid(parent, nullptr, 0) == parent);
  return result;
}

TEST_CASE("the end of the parent named by REGROUP_PARENT requests a stop like SIGTERM", "[cli]") {
  CHECK(result_for(true) == "+");
}

TEST_CASE("REGROUP_PARENT of another process has no effect", "[cli]") {
  CHECK(result_for(false) == "-");
}

}  // namespace
}  // namespace regroup
