// Whether a result in another form computes the same, and what of the difference is rounding.
#include "cli/measure/compare_result.h"

#include <catch2/catch_test_macros.hpp>

#include "tests/converter/conversion.h"
#include "tests/file_tree.h"
#include "tests/temporary_directory.h"

namespace regroup {
namespace {

std::optional<OutputComparison> comparison_of(const ConversionRequest& request) {
  const TemporaryDirectory directory;
  convert(golden("gpt_neox"), directory / "result", request);
  const Model source = open_model(golden("gpt_neox"));
  const Console console;
  return compare_with_source(source, request, plan_conversion(source, request),
                             directory / "result", console);
}

TEST_CASE("a result in the source's dtype has one difference, without rounding", "[cli]") {
  const auto found = comparison_of({.kv_heads = {2}, .target = "phi"});
  REQUIRE(found);
  CHECK(found->largest_output > 1.0);
  CHECK(found->largest_difference < 1e-5 * found->largest_output);
  CHECK_FALSE(found->without_rounding);
}

TEST_CASE("a result in a narrower dtype also has the difference that rounding does not explain",
          "[cli]") {
  const auto found = comparison_of({.kv_heads = {2}, .target = "phi", .dtype = DType::kBF16});
  REQUIRE(found);
  REQUIRE(found->without_rounding);
  // bf16 keeps 8 bits: rounding alone changes logits visibly.
  CHECK(found->largest_difference > 1e-4 * found->largest_output);
  CHECK(*found->without_rounding <= 0.05 * found->largest_output);  // what convert allows
}

}  // namespace
}  // namespace regroup
