#include "cli/commands/commands.h"

namespace regroup {

void add_file_commands(Command program, Console& console) {
  add_inspect_command(program, console);
  add_plan_command(program, console);
  add_diff_command(program, console);
  add_plot_command(program, console);
  add_tokenize_command(program, console);
  add_verify_command(program, console);
  add_convert_command(program, console);
  add_expand_command(program, console);
}

}  // namespace regroup
