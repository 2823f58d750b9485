// The commands of `regroup bench`.
#pragma once

#include "cli/options/command.h"
#include "cli/terminal/console.h"

namespace regroup {

void add_bench_train_command(Command group, Console& console);
void add_bench_decode_command(Command group, Console& console);

}  // namespace regroup
