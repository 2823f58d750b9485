#include "cli/measure/kv_budget.h"

#include <numeric>

#include "cli/shell/table.h"
#include "cli/shell/text.h"

namespace regroup {

std::uint64_t KvBudget::bytes() const {
  return std::accumulate(
      layers.begin(), layers.end(), std::uint64_t{0},
      [](std::uint64_t sum, const BudgetedLayer& layer) { return sum + layer.bytes; });
}

double KvBudget::divergence() const {
  return std::accumulate(
      layers.begin(), layers.end(), 0.0,
      [](double sum, const BudgetedLayer& layer) { return sum + layer.divergence; });
}

std::vector<std::int64_t> KvBudget::kv_heads() const {
  return mapped(layers, &BudgetedLayer::kv_heads);
}

std::string budget_table(const KvBudget& budget, const Console& console) {
  Table table;
  table.add_numbers({"layer", "kv heads", "cache per token", "KL by itself"});
  std::size_t unchanged = 0;
  for (const BudgetedLayer& layer : budget.layers) {
    if (layer.divergence > 0) {
      table.add_row({std::to_string(layer.layer), std::to_string(layer.kv_heads),
                     text_of_bytes(layer.bytes), fmt::format("{:.2g} nats", layer.divergence)});
    } else {
      ++unchanged;
    }
  }
  std::string text =
      table.text(console) +
      fmt::format("\n{} of {} layers stay as they are", unchanged, budget.layers.size()) +
      fmt::format("\nbudget    {} of {} per token in {}, {} used; KL {:.3g} nats",
                  text_of_bytes(budget.budget), text_of_bytes(budget.source_bytes),
                  name_of(budget.dtype), text_of_bytes(budget.bytes()), budget.divergence());
  if (budget.uniform_kv_heads > 0) {
    text += fmt::format(" ({} kv head{} everywhere: {:.3g})", budget.uniform_kv_heads,
                        budget.uniform_kv_heads == 1 ? "" : "s", budget.uniform_divergence);
  }
  return text +
         "\n          the sum over layers changed one at a time; together they may lose more";
}

Json budget_json(const KvBudget& budget) {
  Json layers = json_list(budget.layers, [](const BudgetedLayer& layer) -> Json {
    return {{"layer", layer.layer},
            {"kv_heads", layer.kv_heads},
            {"bytes_per_token", layer.bytes},
            {"divergence", layer.divergence}};
  });
  Json json = {{"budget_bytes_per_token", budget.budget},
               {"source_bytes_per_token", budget.source_bytes},
               {"bytes_per_token", budget.bytes()},
               {"divergence", budget.divergence()},
               {"layers", std::move(layers)}};
  if (budget.uniform_kv_heads > 0) {
    json["uniform"] = {{"kv_heads", budget.uniform_kv_heads},
                       {"divergence", budget.uniform_divergence}};
  }
  return json;
}

}  // namespace regroup
