// The commands of `regroup bench`.
#pragma once

#include "cli/shell/command.h"
#include "cli/shell/console.h"

namespace regroup {

void add_bench_train_command(Command group, Console& console);
void add_bench_decode_command(Command group, Console& console);

}  // namespace regroup
