// What a conversion says of the layers that it measured.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "cli/report/conversion_report.h"

namespace regroup {
namespace {

using Catch::Matchers::ContainsSubstring;

RecordedLayer refitted(const char* attention, std::uint64_t layer, double error) {
  return {.attention = attention, .layer = layer, .error_before = 0.5, .error_after = error};
}

TEST_CASE("the worst layer is named with its stack only if there are several", "[cli]") {
  const RecordedLayer encoder = refitted("encoder", 4, 0.25), self = refitted("decoder", 2, 0.125);
  CHECK_THAT(refit_text({encoder, refitted("encoder", 1, 0.125)}),
             ContainsSubstring("most in layer 4: 25"));
  CHECK_THAT(refit_text({self}), ContainsSubstring("most in layer 2: 12.5"));
  CHECK_THAT(refit_text({self, encoder}), ContainsSubstring("most in encoder layer 4: 25"));
}

TEST_CASE("nothing is said of layers that were not measured", "[cli]") {
  CHECK(refit_text({RecordedLayer()}).empty());
  CHECK(kept_text({RecordedLayer()}).empty());
}

}  // namespace
}  // namespace regroup
