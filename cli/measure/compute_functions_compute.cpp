#include "cli/measure/compute_functions.h"

namespace regroup {

void provide_compute_functions() {
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
  set_compute_functions(kFunctions);
}

}  // namespace regroup
