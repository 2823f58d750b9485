// The report of a cache budget divided among layers.
#include "cli/measure/kv_budget.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

namespace regroup {
namespace {

using Catch::Matchers::ContainsSubstring;

KvBudget two_layers() {
  KvBudget budget;
  budget.budget = 4096;
  budget.source_bytes = 8192;
  budget.layers = {{.layer = 0, .kv_heads = 4, .bytes = 1024, .divergence = 0.25},
                   {.layer = 1, .kv_heads = 8, .bytes = 2048, .divergence = 0.5}};
  return budget;
}

TEST_CASE("a budget's bytes and divergence are sums over its layers", "[cli]") {
  const KvBudget budget = two_layers();
  CHECK(budget.bytes() == 3072);
  CHECK(budget.divergence() == 0.75);
  CHECK(budget.kv_heads() == std::vector<std::int64_t>{4, 8});
}

TEST_CASE("the table compares with the same number in all layers only if one fits", "[cli]") {
  const Console console;
  KvBudget budget = two_layers();
  CHECK_THAT(budget_table(budget, console), ContainsSubstring("4 KiB of 8 KiB per token in F16") &&
                                                ContainsSubstring("3 KiB used") &&
                                                !ContainsSubstring("everywhere"));
  CHECK_FALSE(budget_json(budget).contains("uniform"));
  budget.uniform_kv_heads = 4;
  budget.uniform_divergence = 1.5;
  CHECK_THAT(budget_table(budget, console), ContainsSubstring("(4 kv heads everywhere: 1.5)"));
  CHECK(budget_json(budget)["uniform"] == Json({{"kv_heads", 4}, {"divergence", 1.5}}));
}

TEST_CASE("the JSON of a budget has each layer's part", "[cli]") {
  const Json report = budget_json(two_layers());
  CHECK(report["bytes_per_token"] == 3072);
  REQUIRE(report["layers"].size() == 2);
  CHECK(report["layers"][1] ==
        Json({{"layer", 1}, {"kv_heads", 8}, {"bytes_per_token", 2048}, {"divergence", 0.5}}));
}

}  // namespace
}  // namespace regroup
