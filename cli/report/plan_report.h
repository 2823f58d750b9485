// What `regroup plan` found, as tables or JSON.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/terminal/console.h"
#include "cli/terminal/table.h"
#include "formats/inspect/serving_cost.h"

namespace regroup {

struct ServingPlan {
  std::string path;  ///< as it was given
  DType cache_dtype = DType::kF16;
  std::vector<ServingCost> costs;       ///< the model as it is, then fewer kv heads
  std::vector<std::uint64_t> contexts;  ///< tokens
  std::uint64_t batch = 1;
  std::optional<std::uint64_t> vram;       ///< bytes
  std::optional<std::uint64_t> bandwidth;  ///< bytes per second
  std::optional<std::size_t> chosen;       ///< of `costs`
};

/// Why the fewest kv heads do not fit either: "16 sequences of 8192 tokens need …".
std::string text_of_shortage(const ServingPlan& plan);

/// A table and what it shows.
struct PlanTable {
  std::string caption;
  Table table;
};

/// Caches by context; where memory or bandwidth are given, what fits and how long a step takes.
std::vector<PlanTable> plan_tables(const ServingPlan& plan);

/// What to pass to --kv-heads for one of the costs; of the model as it is, what it has.
std::string heads_text(const ServingCost& cost);

/// "4 kv heads fit in 24 GiB (…)", and the command that makes them, if one is needed. Only where
/// something was chosen.
struct PlanChoice {
  std::string text, command;
};
PlanChoice choice_of(const ServingPlan& plan);

void print_plan(const ServingPlan& plan, bool json, const Console& console);

}  // namespace regroup
