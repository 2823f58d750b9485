#include "cli/measure/verify_logits.h"
#include "formats/base/error.h"

namespace regroup {

void check_logits_question(const LogitsQuestion&, const Model&, const Model&) {
  throw_usage("--logits: this program was built without LibTorch");
}

LogitsAnswer measure_logits(const LogitsQuestion& question, const Model& source,
                            const Model& result, const Console&) {
  check_logits_question(question, source, result);
  return {};
}

}  // namespace regroup
