// Distributes kv heads over layers within a budget of cache bytes per token.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace regroup {

/// One option for a layer.
struct LayerOption {
  std::int64_t kv_heads = 0;
  std::uint64_t bytes = 0;  ///< of keys and values, per token
  double cost = 0.0;        ///< loss of the model if only this layer changes
};

/// The option of each layer, as an index, with the least sum of costs among those whose bytes
/// together are at most `budget`: exactly, by dynamic programming over multiples of the bytes'
/// greatest common divisor. Prefers fewer bytes at equal costs. Throws kUsage if nothing fits,
/// kBadInput naming layer and kv heads if a cost is NaN or infinite.
std::vector<std::size_t> choose_within(const std::vector<std::vector<LayerOption>>& layers,
                                       std::uint64_t budget);

}  // namespace regroup
