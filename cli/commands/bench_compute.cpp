// regroup bench WHAT
#include "cli/commands/bench.h"

#include "cli/commands/commands.h"
#include "cli/shell/command.h"

namespace regroup {

void add_bench_command(Command program, Console& console) {
  Command group = add_whole_command(program, "bench");
  group.needs_command();
  add_bench_train_command(group, console);
  add_bench_decode_command(group, console);
}

}  // namespace regroup
