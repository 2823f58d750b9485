#include <catch2/catch_test_macros.hpp>

#include "formats/base/printable.h"

namespace regroup {

TEST_CASE("base64 gives the test vectors of RFC 4648", "[formats]") {
  CHECK(base64_of("").empty());
  CHECK(base64_of("f") == "Zg==");
  CHECK(base64_of("fo") == "Zm8=");
  CHECK(base64_of("foo") == "Zm9v");
  CHECK(base64_of("foob") == "Zm9vYg==");
  CHECK(base64_of("fooba") == "Zm9vYmE=");
  CHECK(base64_of("foobar") == "Zm9vYmFy");
  CHECK(base64_of("\xff\xfe\xfd") == "//79");
}

TEST_CASE("Base64 is read back, and nothing else", "[formats]") {
  for (const std::string text : {"", "a", "ab", "abc", "\xff\x00\x80"}) {
    CHECK(bytes_of_base64(base64_of(text)) == text);
  }
  for (const char* text : {"a", "YQ=", "=YQ=", "Y===", "YQ==YQ==", "Y Q="}) {
    CAPTURE(text);
    CHECK_FALSE(bytes_of_base64(text));
  }
}

}  // namespace regroup
