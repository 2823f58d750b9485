#include "formats/spec/alibi.h"

#include <catch2/catch_test_macros.hpp>

#include "formats/base/json.h"
#include "tests/file_tree.h"

namespace regroup {
namespace {

TEST_CASE("slopes of 8 heads are the powers of one half in the paper", "[formats]") {
  CHECK(alibi_slopes(8) ==
        std::vector<double>{0.5, 0.25, 0.125, 0.0625, 0.03125, 0.015625, 0.0078125, 0.00390625});
}

TEST_CASE("slopes beyond a power of two interleave those of twice as many heads", "[formats]") {
  // 12 heads: the 8 of 8 heads, then 2^-0.5, 2^-1.5, 2^-2.5, 2^-3.5.
  const std::vector<double> slopes = alibi_slopes(12);
  REQUIRE(slopes.size() == 12);
  CHECK(slopes[7] == 0.00390625);
  CHECK(slopes[8] == 0x1.6a09e667f3bcdp-1);
  CHECK(slopes[9] == 0x1.6a09e667f3bcdp-2);
  CHECK(slopes[11] == 0x1.6a09e667f3bcdp-4);
}

TEST_CASE("slopes for 1 to 130 heads are the doubles nearest to the formula", "[formats]") {
  const Json expected = Json::parse(bytes_of_file(golden("alibi_slopes.json")));
  const auto rows = expected.at("slopes").get<std::vector<std::vector<double>>>();
  REQUIRE(rows.size() == 130);
  for (std::size_t heads = 1; heads <= rows.size(); ++heads) {
    CAPTURE(heads);
    CHECK(alibi_slopes(static_cast<std::int64_t>(heads), expected.at("bias_max").get<double>()) ==
          rows[heads - 1]);
  }
}

TEST_CASE("bias_max scales the exponents", "[formats]") {
  CHECK(alibi_slopes(4, 16.0) == std::vector<double>{0x1p-4, 0x1p-8, 0x1p-12, 0x1p-16});
  CHECK(alibi_slopes(3, 4.0) == std::vector<double>{0x1p-2, 0x1p-4, 0x1p-1});
}

}  // namespace
}  // namespace regroup
