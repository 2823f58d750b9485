// What `regroup bench` can measure: each adds its command to the group.
#pragma once

#include <CLI/App.hpp>

#include "cli/terminal/console.h"

namespace regroup {

void add_bench_train_command(CLI::App& group, Console& console);
void add_bench_decode_command(CLI::App& group, Console& console);

}  // namespace regroup
