// The owner of each tensor.
#include <catch2/catch_test_macros.hpp>

#include "uptrain/distributed/sharded_weights.h"

namespace regroup {

TEST_CASE("tensors are assigned by size to the rank with the fewest elements", "[uptrain]") {
  CHECK(balanced_owners({4, 10, 6, 1, 3}, 2) == std::vector<int>{1, 0, 1, 1, 0});
  CHECK(balanced_owners({5, 5, 5}, 3) == std::vector<int>{0, 1, 2});
  CHECK(balanced_owners({5, 5}, 1) == std::vector<int>{0, 0});
}

}  // namespace regroup
