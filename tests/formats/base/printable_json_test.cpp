#include <catch2/catch_test_macros.hpp>

#include "formats/base/json.h"

namespace regroup {
namespace {

TEST_CASE("untrusted values are printed on one line whatever their bytes", "[formats]") {
  CHECK(printable_json(Json::parse(R"({"a": [1, "b\n"]})")) == R"({"a":[1,"b\n"]})");
  CHECK(printable_json(Json("\xff.1.0")) == R"("\ufffd.1.0")");
  CHECK(printable_json(Json("\xe2\x82\xac")) == R"("\u20ac")");
  CHECK(printable_json(Json(std::string(300, 'x'))).size() < 120);
  CHECK(printable_json(Json(std::string(300, 'x')), 0).size() == 302);
}

}  // namespace
}  // namespace regroup
