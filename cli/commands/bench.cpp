// regroup bench WHAT
#include "cli/commands/bench.h"

#include <CLI/CLI.hpp>

#include "cli/commands/commands.h"

namespace regroup {

void add_bench_command(CLI::App& program, Console& console) {
  CLI::App* group = add_whole_command(program, "bench");
  group->require_subcommand(1);
  add_bench_train_command(*group, console);
  add_bench_decode_command(*group, console);
}

}  // namespace regroup
