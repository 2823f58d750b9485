#include "cli/process/parent_process.h"

#include <csignal>
#include <cstdlib>
#include <string>
#include <sys/prctl.h>
#include <unistd.h>

namespace regroup {

void stop_with_parent() {
  const char* named = std::getenv("REGROUP_PARENT");
  const std::string parent = std::to_string(::getppid());
  if (named == nullptr || parent != named) {
    return;
  }
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (std::to_string(::getppid()) != parent) {  // it ended before the call
    std::raise(SIGTERM);
  }
}

}  // namespace regroup
