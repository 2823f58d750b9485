// The heads that methods without weights select.
#include "converter/heads/pool_method.h"

#include <set>

#include <catch2/catch_test_macros.hpp>

#include "tests/refusal.h"

namespace regroup {
namespace {

using Lists = std::vector<std::vector<std::int64_t>>;

TEST_CASE("pooling methods are found by name", "[converter]") {
  for (const char* name : {"mean", "first", "random", "lowrank"}) {
    CHECK(name_of(parse_pool_method(name)) == name);
  }
  CHECK_THAT(refusal_of([] { parse_pool_method("median"); }), is_wrong_usage("median", "lowrank"));
}

TEST_CASE("mean takes all heads of a group and first takes the first", "[converter]") {
  CHECK(heads_to_average({PoolMethod::kMean, 0}, 6, 2, 2, 0) == Lists{{0, 1, 2}, {3, 4, 5}});
  CHECK(heads_to_average({PoolMethod::kFirst, 0}, 6, 2, 2, 0) == Lists{{0}, {3}});
  CHECK(heads_to_average({PoolMethod::kFirst, 0}, 6, 2, 4, 0) == Lists{{0}, {0}, {3}, {3}});
}

TEST_CASE("random heads depend on seed and layer and are the same for copies", "[converter]") {
  std::set<std::int64_t> drawn;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const Lists heads = heads_to_average({PoolMethod::kRandom, seed}, 8, 2, 4, 7);
    CHECK(heads == heads_to_average({PoolMethod::kRandom, seed}, 8, 2, 4, 7));
    CHECK(heads[0] == heads[1]);
    CHECK(heads[2] == heads[3]);
    CHECK((heads[0].front() >= 0 && heads[0].front() < 4));
    CHECK((heads[2].front() >= 4 && heads[2].front() < 8));
    drawn.insert(heads[0].front());
  }
  CHECK(drawn.size() == 4);
  std::set<std::int64_t> of_layers;
  for (std::uint64_t layer = 0; layer < 20; ++layer) {
    of_layers.insert(heads_to_average({PoolMethod::kRandom, 1}, 8, 2, 2, layer)[0].front());
  }
  CHECK(of_layers.size() == 4);
}

TEST_CASE("methods that need the weights select no heads in advance", "[converter]") {
  CHECK_THAT(refusal_of([] { heads_to_average({PoolMethod::kLowrank, 0}, 4, 2, 2, 0); }),
             is_wrong_usage("lowrank"));
}

}  // namespace
}  // namespace regroup
