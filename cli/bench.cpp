// regroup bench WHAT
#include "cli/bench.h"

#include <CLI/CLI.hpp>

#include "cli/commands.h"

namespace regroup {

void add_bench_command(CLI::App& program, Console& console) {
  CLI::App* group = program.add_subcommand(
      "bench", "Measure how fast a model trains and decodes on this machine");
  group->require_subcommand(1);
  add_bench_train_command(*group, console);
  add_bench_decode_command(*group, console);
}

}  // namespace regroup
