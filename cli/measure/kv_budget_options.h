// Options of `regroup convert --kv-budget`, and its measurements.
#pragma once

#include <cstdint>
#include <string>

#include "cli/measure/budget_report.h"
#include "cli/measure/refit_options.h"
#include "cli/shell/console.h"
#include "converter/convert/conversion_plan.h"
#include "formats/model/model.h"

namespace regroup {

struct KvBudgetOptions {
  std::string budget;  ///< "64KiB" per token, or "25%" of the source's; empty: none
  std::string data;    ///< a token file on which layers are measured
  std::int64_t max_tokens = 2048;
};

/// Measures every layer and chooses kv heads within the budget that minimise the sum of
/// divergences. Context, batch, device and threads are those of `refit`. Throws kUsage without
/// data, for an invalid budget and for a model without a KV cache.
KvBudget share_kv_budget(const Model& source, const ConversionRequest& request,
                         const KvBudgetOptions& options, const RefitOptions& refit,
                         const Console& console);

}  // namespace regroup
