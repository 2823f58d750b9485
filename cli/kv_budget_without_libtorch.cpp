#include "cli/kv_budget.h"
#include "formats/error.h"

namespace regroup {

KvBudget share_kv_budget(const Model&, const ConversionRequest&, const KvBudgetOptions&,
                         const RefitOptions&, const Console&, const std::atomic<bool>&) {
  throw_usage("--kv-budget: this program was built without LibTorch");
}

}  // namespace regroup
