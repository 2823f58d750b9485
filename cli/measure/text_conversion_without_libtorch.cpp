#include "cli/measure/text_conversion.h"
#include "formats/base/error.h"

namespace regroup {

PreparedText prepare_text(const Model&, const TextOptions&, const RefitOptions&, const std::string&,
                          const Console&) {
  throw_usage("--text: this program was built without LibTorch");
}

HeldOutReport compare_on_text(const Model&, const PreparedText&, const ConversionPlan&,
                              const std::string&, const Console&) {
  throw_usage("--text: this program was built without LibTorch");
}

}  // namespace regroup
