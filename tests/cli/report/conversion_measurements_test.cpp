// What a conversion says of the layers that it measured.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "cli/report/conversion_report.h"

namespace regroup {
namespace {

using Catch::Matchers::ContainsSubstring;

LayerReport refitted(AttentionRole role, std::size_t layer, double error) {
  LayerReport report;
  report.role = role;
  report.layer = layer;
  report.refinement = RefinementReport{.error_before = 0.5, .error_after = error};
  return report;
}

TEST_CASE("the worst layer is named with its stack only if there are several", "[cli]") {
  const LayerReport encoder = refitted(AttentionRole::kEncoder, 4, 0.25);
  const LayerReport self = refitted(AttentionRole::kSelf, 2, 0.125);
  CHECK_THAT(refit_text({encoder, refitted(AttentionRole::kEncoder, 1, 0.125)}),
             ContainsSubstring("most in layer 4: 25"));
  CHECK_THAT(refit_text({self}), ContainsSubstring("most in layer 2: 12.5"));
  CHECK_THAT(refit_text({self, encoder}), ContainsSubstring("most in encoder layer 4: 25"));
}

TEST_CASE("nothing is said of layers that were not measured", "[cli]") {
  CHECK(refit_text({LayerReport()}).empty());
  CHECK(kept_text({LayerReport()}).empty());
}

}  // namespace
}  // namespace regroup
