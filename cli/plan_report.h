// What `regroup plan` found, as tables or JSON.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/console.h"
#include "formats/serving_cost.h"

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

void print_plan(const ServingPlan& plan, bool json, const Console& console);

}  // namespace regroup
