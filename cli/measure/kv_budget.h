// A budget of KV cache divided among layers, for `regroup convert --kv-budget`:
// measurements, text and JSON.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "cli/measure/conversion_options.h"
#include "cli/shell/console.h"
#include "formats/base/json.h"
#include "formats/model/model.h"

namespace regroup {

/// The part of one layer.
struct BudgetedLayer {
  std::size_t layer = 0;
  std::int64_t kv_heads = 0;
  std::uint64_t bytes = 0;  ///< per token, in the dtype of the result's cache
  double divergence = 0.0;  ///< nats, measured with only this layer changed
};

struct KvBudget {
  /// Per token, in the dtype of the result's cache.
  std::uint64_t budget = 0, source_bytes = 0;
  DType dtype = DType::kF16;
  std::vector<BudgetedLayer> layers;
  /// The most kv heads that fit if all layers have the same number, and the sum of divergences for
  /// them; 0 if no number fits.
  std::int64_t uniform_kv_heads = 0;
  double uniform_divergence = 0.0;

  std::uint64_t bytes() const;
  double divergence() const;  ///< the sum over layers
  std::vector<std::int64_t> kv_heads() const;
};

std::string budget_table(const KvBudget& budget, const Console& console);
Json budget_json(const KvBudget& budget);

/// The budget, and no layers yet. Throws kUsage without a text, for a budget that is invalid or too
/// small for one kv head in each layer, and for models that share_kv_budget() cannot measure.
KvBudget open_kv_budget(const Model& source, const ConvertOptions& options);

/// Measures every layer and chooses kv heads within the budget that minimise the sum of
/// divergences. Throws what open_kv_budget() does.
KvBudget share_kv_budget(const Model& source, const ConvertOptions& options,
                         const Console& console);

}  // namespace regroup
