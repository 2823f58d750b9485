// What `regroup convert --kv-budget` asks for.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "cli/measure/budget_report.h"
#include "cli/measure/refit_options.h"
#include "cli/terminal/console.h"
#include "converter/plan/conversion_plan.h"
#include "formats/model/model.h"

namespace regroup {

struct KvBudgetOptions {
  std::string budget;  ///< "64KiB" per token or "25%" of the source's; empty: none
  std::string data;    ///< a token file on which layers are measured
  std::int64_t max_tokens = 2048;
};

/// Measures every layer and shares the budget so that the divergences add up to least. Context,
/// batch, device and threads as for refitting. Throws kUsage without data, for a budget that is no
/// size and in a build without LibTorch.
KvBudget share_kv_budget(const Model& source, const ConversionRequest& request,
                         const KvBudgetOptions& options, const RefitOptions& computing,
                         const Console& console, const std::atomic<bool>& stop);

}  // namespace regroup
