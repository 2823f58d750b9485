#include "formats/spec/alibi.h"

#include <bit>
#include <cmath>

namespace regroup {

std::vector<double> alibi_slopes(std::int64_t query_heads, double bias_max) {
  const auto power =
      static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(query_heads)));
  std::vector<double> slopes;
  for (std::int64_t h = 0; h < query_heads; ++h) {
    // The exponent in units of bias_max / power. The heads beyond the power of two lie halfway
    // between the others.
    const long double steps =
        h < power ? static_cast<long double>(h + 1) : static_cast<long double>(h - power) + 0.5L;
    // Computed in extended precision, so that the only rounding to double is correct.
    const long double exponent = -bias_max * steps / static_cast<long double>(power);
    slopes.push_back(static_cast<double>(std::exp2(exponent)));
  }
  return slopes;
}

}  // namespace regroup
