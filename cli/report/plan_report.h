// The report of `regroup plan`, as tables or JSON.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/shell/console.h"
#include "cli/shell/table.h"
#include "formats/model/serving_cost.h"

namespace regroup {

struct ServingPlan {
  std::string path = {};    ///< as given on the command line
  std::string source = {};  ///< what convert can read: the directory of a config.json
  bool weights = true;      ///< whether they are there
  DType cache_dtype = DType::kF16;
  std::vector<ServingCost> costs = {};       ///< the model as it is, then fewer kv heads
  std::vector<std::uint64_t> contexts = {};  ///< tokens
  std::uint64_t batch = 1;
  std::optional<std::uint64_t> vram = std::nullopt;       ///< bytes
  std::optional<std::uint64_t> bandwidth = std::nullopt;  ///< bytes per second
  bool chooses = false;  ///< whether memory, context and batch ask for a number of kv heads
  std::optional<std::size_t> chosen = std::nullopt;  ///< index in `costs`; none if none fits
};

/// "8,192 positions", and whether a context of the plan is longer; empty if any number will do.
std::string text_of_positions(const ServingPlan& plan);

/// "1 sequence", "1,024 sequences".
std::string text_of_sequences(std::uint64_t count);

/// "3.35 TB/s", of bytes per second.
std::string text_of_bandwidth(std::uint64_t bytes);

/// Why even the fewest kv heads do not fit: "16 sequences of 8,192 tokens do not fit in …".
std::string text_of_shortage(const ServingPlan& plan);

/// A table and its caption.
struct PlanTable {
  std::string caption;
  Table table;
};

/// The cache by context; with `vram` the sequences that fit, with `bandwidth` the time of a step.
std::vector<PlanTable> plan_tables(const ServingPlan& plan);

/// The kv heads of one of the costs: the value for --kv-heads, or "32 (now)" for the model as it
/// is.
std::string heads_text(const ServingCost& cost);

/// "4 kv heads fit in 24 GiB (…)", and the command that makes such a model with the least loss, if
/// one is needed; `advice` belongs to the command. Requires `chosen`.
struct PlanChoice {
  std::string text, command, advice;
};
PlanChoice choice_of(const ServingPlan& plan);

void print_plan(const ServingPlan& plan, bool json, const Console& console);

}  // namespace regroup
