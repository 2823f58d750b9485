#include "cli/commands/commands.h"
#include "cli/measure/compute_functions.h"

namespace regroup {

void add_all_commands(Command program, Console& console) {
  add_file_commands(program, console);
#if REGROUP_WITH_UPTRAIN
  static constexpr ComputeFunctions kFunctions{.solving_device = solving_device,
                                               .make_refiner = make_refiner,
                                               .open_kv_budget = open_kv_budget,
                                               .share_kv_budget = share_kv_budget,
                                               .check_is_predicted = check_is_predicted,
                                               .prepare_text = prepare_text,
                                               .distill_on_text = distill_on_text,
                                               .forget_distillation = forget_distillation,
                                               .compare_on_text = compare_on_text,
                                               .compare_with_source = compare_with_source,
                                               .check_logits_options = check_logits_options,
                                               .measure_logits = measure_logits};
  compute_functions = &kFunctions;
  for (AddCommand* add :
       {add_bench_command, add_calibrate_command, add_eval_command, add_init_command,
        add_sample_command, add_teach_command, add_uptrain_command}) {
    add(program, console);
  }
#endif
  add_completions_command(program, console);
  add_manual_command(program, console);
}

}  // namespace regroup
