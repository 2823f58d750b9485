// regroup with all its commands. In builds with LibTorch this is the program regroup-compute, which
// cli/launcher.cpp executes.
#include "cli/commands/commands.h"
#include "cli/program.h"

int main(int argc, char** argv) {
  using namespace regroup;
  return run_program(argc, argv, add_all_commands);
}
