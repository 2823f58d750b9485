// Which windows of a text are used if it has more of them than are needed.
#pragma once

#include <cstdint>
#include <vector>

namespace regroup {

/// `count` different numbers below `all`, in an order of which each beginning is spread over the
/// whole range: multiples of the golden section of `all`, modulo `all` (the additive recurrence of
/// Kronecker). Requires 0 <= count <= all.
std::vector<std::int64_t> spread_windows(std::int64_t all, std::int64_t count);

}  // namespace regroup
