#include "formats/base/checksum.h"

#include <string>

#include <catch2/catch_test_macros.hpp>

namespace regroup {

TEST_CASE("checksums equal published XXH64 values", "[uptrain]") {
  CHECK(checksum_of(std::string_view("")) == "ef46db3751d8e999");
  CHECK(checksum_of(std::string_view("a")) == "d24ec4f1a98c6e5b");
  CHECK(checksum_of(std::string_view("abc")) == "44bc2cf5ad770999");
  CHECK(checksum_of(std::string_view("Nobody inspects the spammish repetition")) ==
        "fbcea83c8a378bf1");
}

TEST_CASE("checksums change with any byte of any length", "[uptrain]") {
  for (std::size_t length = 1; length < 100; ++length) {
    std::string text(length, 'x');
    const std::string before = checksum_of(std::string_view(text));
    for (char& byte : text) {
      byte = 'y';
      CHECK(checksum_of(std::string_view(text)) != before);
      byte = 'x';
    }
  }
}

}  // namespace regroup
