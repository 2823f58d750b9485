#include "cli/process/sleeping_threads.h"

#include <cstdlib>
#include <fstream>
#include <string>
#include <unistd.h>
#include <vector>

namespace regroup {

void let_threads_sleep() {
  if (std::getenv("OMP_WAIT_POLICY") != nullptr || std::getenv("GOMP_SPINCOUNT") != nullptr) {
    return;
  }
  std::ifstream command_line("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> arguments;
  for (std::string argument; std::getline(command_line, argument, '\0');) {
    arguments.push_back(argument);
  }
  std::vector<char*> pointers;
  for (std::string& argument : arguments) {
    pointers.push_back(argument.data());
  }
  pointers.push_back(nullptr);
  ::setenv("OMP_WAIT_POLICY", "passive", 1);
  if (!arguments.empty()) {
    ::execv("/proc/self/exe", pointers.data());
  }
  // If execv() fails, training is slower on a busy machine but correct.
}

}  // namespace regroup
