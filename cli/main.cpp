// regroup with all its commands. Where computing needs LibTorch this is a program of its own, which
// cli/launcher.cpp hands over to.
#include "cli/commands/commands.h"
#include "cli/program.h"

int main(int argc, char** argv) {
  using namespace regroup;
  return run_program(argc, argv, add_all_commands);
}
