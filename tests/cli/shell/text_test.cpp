// Quantities as text, and line breaks between words.
#include "cli/shell/text.h"

#include <cmath>
#include <string>

#include <catch2/catch_test_macros.hpp>

namespace regroup {
namespace {

TEST_CASE("bytes are shown in powers of 1024 with three digits", "[cli]") {
  CHECK(text_of_bytes(0) == "0 B");
  CHECK(text_of_bytes(1000) == "1000 B");
  CHECK(text_of_bytes(1024) == "1 KiB");
  CHECK(text_of_bytes(1536) == "1.5 KiB");
  CHECK(text_of_bytes(13.5e9) == "12.6 GiB");
  CHECK(text_of_bytes(3.35e12) == "3.05 TiB");
  CHECK(text_of_bytes(512.0 * 1024 * 1024) == "512 MiB");
}

TEST_CASE("durations and counts have a suitable unit", "[cli]") {
  CHECK(text_of_duration(0.25) == "0.2 s");
  CHECK(text_of_duration(200) == "3 min 20 s");
  CHECK(text_of_duration(7500) == "2 h 05 min");
  CHECK(text_of_count(6.74e9) == "6.74 B");
  CHECK(with_thousands(1234567) == "1,234,567");
}

TEST_CASE("lines break between words with a hanging indent", "[cli]") {
  CHECK(wrapped("memory    about one, two, three", 20, 10) ==
        "memory    about one,\n          two, three");
  CHECK(wrapped("short\nlines stay", 20, 4) == "short\nlines stay");
  CHECK(wrapped("", 20, 4).empty());
}

TEST_CASE("colours have no width", "[cli]") {
  const std::string heading = "\x1b[1mmodel   loss\x1b[0m";
  CHECK(width_of(heading) == 12);
  CHECK(wrapped(heading + "\n" + heading, 12, 2) == heading + "\n" + heading);
  CHECK(width_of("\xc3\xa4\x1b[31mb") == 2);
}

TEST_CASE("a number stays with its unit and a long word stays whole", "[cli]") {
  CHECK(wrapped("weights take 12.6 GiB", 18, 2) == "weights take\n  12.6 GiB");
  CHECK(wrapped("a /a/path/of/many/letters b", 10, 2) == "a /a/path/of/many/letters\n  b");
}

TEST_CASE("text width is counted in characters and not in bytes", "[cli]") {
  CHECK(width_of("größe") == 5);
  CHECK(code_points("größe", 3) == "grö");
  CHECK(wrapped("größe größe", 11, 0) == "größe größe");
}

}  // namespace
}  // namespace regroup
