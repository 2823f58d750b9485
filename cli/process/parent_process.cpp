#include "cli/process/parent_process.h"

#include <csignal>
#include <cstdlib>
#include <string>
#include <sys/prctl.h>
#include <unistd.h>

#include "cli/process/interrupt.h"

namespace regroup {
namespace {

extern "C" void on_parent_end(int) { request_interrupt(SIGTERM); }

}  // namespace

void stop_with_parent() {
  const char* named = std::getenv("REGROUP_PARENT");
  const std::string parent = std::to_string(::getppid());
  if (named == nullptr || parent != named) {
    return;
  }
  // A signal of its own: it comes several times if the parent has threads, which end one by one,
  // and a second SIGTERM ends the program at once.
  struct sigaction action{};
  action.sa_handler = on_parent_end;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  sigaction(SIGUSR1, &action, nullptr);
  ::prctl(PR_SET_PDEATHSIG, SIGUSR1);
  if (std::to_string(::getppid()) != parent) {  // it ended before the call
    request_interrupt(SIGTERM);
  }
}

}  // namespace regroup
