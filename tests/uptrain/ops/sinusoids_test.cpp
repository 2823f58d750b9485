// Sinusoidal positions, compared with the formula.
#include <cmath>

#include <ATen/TensorOperators.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>

#include "uptrain/ops/rope.h"

namespace regroup {

TEST_CASE("the first half of a position's embedding are sines and the second cosines",
          "[uptrain]") {
  const at::Tensor table = sinusoids(3, 5, 6, 2, at::TensorOptions(at::kDouble));
  REQUIRE(table.sizes().vec() == std::vector<std::int64_t>{5, 6});
  for (std::int64_t row = 0; row < 5; ++row) {
    for (std::int64_t i = 0; i < 3; ++i) {
      const double angle =
          static_cast<double>(3 + row) * std::pow(10000.0, -static_cast<double>(i) / 2.0);
      CHECK_THAT(table[row][i].item<double>(), Catch::Matchers::WithinAbs(std::sin(angle), 1e-12));
      CHECK_THAT(table[row][3 + i].item<double>(),
                 Catch::Matchers::WithinAbs(std::cos(angle), 1e-12));
    }
  }
}

}  // namespace regroup
