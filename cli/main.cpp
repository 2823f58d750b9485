// regroup with all its commands. Where computing needs LibTorch this is a program of its own, which
// cli/front.cpp hands over to.
#include "cli/commands.h"
#include "cli/hand_over.h"
#include "cli/program.h"

void regroup::hand_over_to_libtorch() {}

int main(int argc, char** argv) {
  using namespace regroup;
  return run_program(argc, argv, [](CLI::App& program, Console& console) {
    add_inspect_command(program, console);
    add_plan_command(program, console);
    add_plot_command(program, console);
    add_diff_command(program, console);
    add_tokenize_command(program, console);
    add_verify_command(program, console);
    add_convert_command(program, console);
    add_expand_command(program, console);
#if REGROUP_WITH_UPTRAIN
    add_bench_command(program, console);
    add_calibrate_command(program, console);
    add_eval_command(program, console);
    add_init_command(program, console);
    add_teach_command(program, console);
    add_uptrain_command(program, console);
    add_demo_command(program, console);
#endif
    add_completions_command(program, console);
    add_manual_command(program, console);
  });
}
