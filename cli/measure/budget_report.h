// How a budget of cache was shared among layers, as text or JSON.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "cli/terminal/console.h"
#include "formats/json/json.h"

namespace regroup {

/// One layer's part in the budget.
struct BudgetedLayer {
  std::size_t layer = 0;
  std::int64_t kv_heads = 0;
  std::uint64_t bytes = 0;  ///< per token
  double divergence = 0.0;  ///< nats, with this layer alone changed
};

struct KvBudget {
  std::uint64_t budget = 0, source_bytes = 0;  ///< per token
  std::vector<BudgetedLayer> layers;
  /// The most kv heads that fit where all layers have as many, and what those lose by the same
  /// measure; 0 where none do.
  std::int64_t uniform_kv_heads = 0;
  double uniform_divergence = 0.0;

  std::uint64_t bytes() const;
  double divergence() const;  ///< the sum over layers
  std::vector<std::int64_t> kv_heads() const;
};

std::string budget_table(const KvBudget& budget, const Console& console);
Json budget_json(const KvBudget& budget);

}  // namespace regroup
