#include "formats/base/name_table.h"

#include <string>
#include <vector>

#include <catch2/catch_test_macros.hpp>

namespace regroup {
namespace {

std::vector<std::string> numbered_names(std::size_t count) {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < count; ++i) {
    names.push_back("model.layers." + std::to_string(i) + ".weight");
  }
  return names;
}

TEST_CASE("a name table finds each of its names and nothing else", "[formats]") {
  const std::vector<std::string> names = numbered_names(5000);
  for (const std::size_t expected : {0, 100, 5000}) {
    CAPTURE(expected);
    NameTable table(expected);
    for (std::size_t i = 0; i < names.size(); ++i) {
      REQUIRE(table.insert(names[i], i) == std::nullopt);
    }
    for (std::size_t i = 0; i < names.size(); ++i) {
      CHECK(table.find(std::string(names[i])) == i);
    }
    CHECK(table.find("model.layers.5000.weight") == std::nullopt);
    CHECK(table.find("") == std::nullopt);
  }
}

TEST_CASE("a duplicate name keeps its first number", "[formats]") {
  NameTable table;
  CHECK(table.insert("", 7) == std::nullopt);
  CHECK(table.insert("a", 8) == std::nullopt);
  CHECK(table.insert("a", 9) == 8);
  CHECK(table.find("a") == 8);
  CHECK(table.find({}) == 7);
}

TEST_CASE("an empty name table finds nothing", "[formats]") {
  CHECK(NameTable().find("a") == std::nullopt);
}

}  // namespace
}  // namespace regroup
