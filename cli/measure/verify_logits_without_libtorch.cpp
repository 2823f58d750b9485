#include "cli/measure/verify_logits.h"
#include "formats/base/error.h"

namespace regroup {

void check_logits_options(const LogitsOptions&, const Model&, const Model&) {
  throw_usage("--logits: this program was built without LibTorch");
}

LogitsResult measure_logits(const LogitsOptions& options, const Model& source, const Model& result,
                            const Console&) {
  check_logits_options(options, source, result);
  return {};
}

}  // namespace regroup
