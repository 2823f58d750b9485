#include "cli/commands/commands.h"
#include "cli/measure/compute_functions.h"

namespace regroup {

void add_all_commands(Command program, Console& console) {
  add_file_commands(program, console);
#if REGROUP_WITH_UPTRAIN
  provide_compute_functions();
  add_bench_command(program, console);
  add_calibrate_command(program, console);
  add_eval_command(program, console);
  add_init_command(program, console);
  add_sample_command(program, console);
  add_teach_command(program, console);
  add_uptrain_command(program, console);
#endif
  add_completions_command(program, console);
  add_manual_command(program, console);
}

}  // namespace regroup
