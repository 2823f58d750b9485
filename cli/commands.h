// The commands: each adds its options to the program and runs when it is the one that was named.
#pragma once

#include <CLI/App.hpp>

#include "cli/console.h"

namespace regroup {

void add_convert_command(CLI::App& program, Console& console);
void add_completions_command(CLI::App& program, Console& console);
void add_diff_command(CLI::App& program, Console& console);
void add_expand_command(CLI::App& program, Console& console);
void add_inspect_command(CLI::App& program, Console& console);
void add_manual_command(CLI::App& program, Console& console);
void add_plan_command(CLI::App& program, Console& console);
void add_plot_command(CLI::App& program, Console& console);
void add_tokenize_command(CLI::App& program, Console& console);
void add_verify_command(CLI::App& program, Console& console);

// These compute, so they are there only when the program is built with LibTorch.
void add_bench_command(CLI::App& program, Console& console);
void add_calibrate_command(CLI::App& program, Console& console);
void add_demo_command(CLI::App& program, Console& console);
void add_eval_command(CLI::App& program, Console& console);
void add_init_command(CLI::App& program, Console& console);
void add_teach_command(CLI::App& program, Console& console);
void add_uptrain_command(CLI::App& program, Console& console);

}  // namespace regroup
