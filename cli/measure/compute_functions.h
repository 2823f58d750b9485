// What convert and verify compute with LibTorch: one table, which a program with LibTorch fills
// (cli/all_commands.cpp).
#pragma once

#include "cli/measure/compare_logits.h"
#include "cli/measure/conversion_options.h"
#include "cli/measure/kv_budget.h"
#include "cli/measure/text_conversion.h"
#include "formats/base/error.h"

namespace regroup {

/// Pointers to the functions of the same names, which commands call through this table only.
struct ComputeFunctions {
  decltype(&regroup::solving_device) solving_device;
  decltype(&regroup::make_refiner) make_refiner;
  decltype(&regroup::open_kv_budget) open_kv_budget;
  decltype(&regroup::share_kv_budget) share_kv_budget;
  decltype(&regroup::check_is_predicted) check_is_predicted;
  decltype(&regroup::prepare_text) prepare_text;
  decltype(&regroup::distill_on_text) distill_on_text;
  decltype(&regroup::forget_distillation) forget_distillation;
  decltype(&regroup::compare_on_text) compare_on_text;
  decltype(&regroup::compare_with_source) compare_with_source;
  decltype(&regroup::check_logits_options) check_logits_options;
  decltype(&regroup::measure_logits) measure_logits;
};

/// The table; null in a program without LibTorch.
inline const ComputeFunctions* compute_functions = nullptr;

/// The same. Throws kUsage, naming `option`, in a program without LibTorch.
inline const ComputeFunctions& compute_for(const char* option) {
  if (compute_functions == nullptr) {
    throw_usage("{}: this program was built without LibTorch", option);
  }
  return *compute_functions;
}

}  // namespace regroup
