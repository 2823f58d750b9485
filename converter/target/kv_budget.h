// Which layers get how many kv heads where all of them together may take so many bytes per token.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace regroup {

/// What a layer may become.
struct LayerOption {
  std::int64_t kv_heads = 0;
  std::uint64_t bytes = 0;  ///< of keys and values, per token
  double cost = 0.0;        ///< what the model loses where this layer alone has so few
};

/// The option of each layer, as an index, with the least sum of costs among those whose bytes
/// together are at most `budget`: exactly, by dynamic programming over multiples of the bytes'
/// greatest common divisor. Of equal costs the fewer bytes. Throws kUsage where nothing fits,
/// kBadInput naming layer and kv heads where a cost is NaN or infinite.
std::vector<std::size_t> choose_within(const std::vector<std::vector<LayerOption>>& layers,
                                       std::uint64_t budget);

}  // namespace regroup
