#include "cli/measure/text_check.h"
#include "cli/measure/text_conversion.h"
#include "cli/measure/text_distillation.h"
#include "formats/base/error.h"

namespace regroup {

void check_is_predicted(const Model&, const std::filesystem::path&, const char* option,
                        const RefitOptions&, const Console&) {
  throw_usage("{}: this program was built without LibTorch", option);
}

bool distills(const TextOptions&) { return false; }

bool refits_by_default(const TextOptions&) { return false; }

PreparedText prepare_text(const Model&, const TextOptions&, const RefitOptions&, const std::string&,
                          const Console&) {
  throw_usage("--text: this program was built without LibTorch");
}

void calibrate_on_text(const Model&, const RefitOptions&, PreparedText&, const Console&) {
  throw_usage("--text: this program was built without LibTorch");
}

HeldOutReport compare_on_text(const Model&, const PreparedText&, const ConversionPlan&,
                              const std::string&, const Console&) {
  throw_usage("--text: this program was built without LibTorch");
}

std::string why_not_distilled(const Model&, const ConversionPlan&, const RefitOptions&) {
  throw_usage("--text: this program was built without LibTorch");
}

std::string distillation_recipe(const PreparedText&, const RefitOptions&) { return ""; }

Json distill_on_text(const Model&, const ConversionPlan&, const PreparedText&, const RefitOptions&,
                     const std::filesystem::path&, const Console&) {
  throw_usage("--text: this program was built without LibTorch");
}

}  // namespace regroup
