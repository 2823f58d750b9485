#include "cli/measure/kv_budget_options.h"
#include "formats/base/error.h"

namespace regroup {

KvBudget share_kv_budget(const Model&, const ConversionRequest&, const KvBudgetOptions&,
                         const RefitOptions&, const Console&) {
  throw_usage("--kv-budget: this program was built without LibTorch");
}

}  // namespace regroup
