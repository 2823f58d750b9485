#include "cli/measure/spread_windows.h"

#include <algorithm>
#include <set>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

namespace regroup {

TEST_CASE("windows are different ones of the text", "[cli]") {
  for (std::int64_t all = 1; all < 300; ++all) {
    const std::vector<std::int64_t> numbers = spread_windows(all, all);
    CHECK(std::ssize(std::set<std::int64_t>(numbers.begin(), numbers.end())) == all);
    CHECK(*std::min_element(numbers.begin(), numbers.end()) == 0);
    CHECK(*std::max_element(numbers.begin(), numbers.end()) == all - 1);
  }
}

TEST_CASE("each beginning of the windows is spread over the whole text", "[cli]") {
  const std::int64_t all = GENERATE(518, 4096, 9973, 100'000);
  const std::int64_t count = GENERATE(8, 64, 500);
  std::vector<std::int64_t> numbers = spread_windows(all, count);
  REQUIRE(std::ssize(numbers) == count);
  std::sort(numbers.begin(), numbers.end());
  numbers.push_back(all);
  for (std::size_t i = 1; i < numbers.size(); ++i) {
    // No gap is longer than three times what equal ones are.
    CHECK((numbers[i] - numbers[i - 1]) * count <= 3 * all);
  }
}

TEST_CASE("no windows of an empty text", "[cli]") { CHECK(spread_windows(0, 0).empty()); }

}  // namespace regroup
