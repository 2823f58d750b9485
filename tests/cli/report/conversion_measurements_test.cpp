// What a conversion says of the layers that it measured.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "cli/report/conversion_facts.h"

namespace regroup {
namespace {

using Catch::Matchers::ContainsSubstring;

RecordedLayer refitted(const char* attention, std::uint64_t layer, double error) {
  return {.attention = attention, .layer = layer, .error_before = 0.5, .error_after = error};
}

TEST_CASE("the worst layer is named with its stack only if there are several", "[cli]") {
  const RecordedLayer encoder = refitted("encoder", 4, 0.25), self = refitted("decoder", 2, 0.125);
  CHECK_THAT(text_of_refitted({encoder, refitted("encoder", 1, 0.125)}),
             ContainsSubstring("most in layer 4: 25"));
  CHECK_THAT(text_of_refitted({self}), ContainsSubstring("most in layer 2: 12.5"));
  CHECK_THAT(text_of_refitted({self, encoder}), ContainsSubstring("most in encoder layer 4: 25"));
}

TEST_CASE("nothing is said of layers that were not measured", "[cli]") {
  CHECK(text_of_refitted({RecordedLayer()}).empty());
  CHECK(text_of_kept({RecordedLayer()}).empty());
}

}  // namespace
}  // namespace regroup
