#include "formats/base/printable.h"

#include <catch2/catch_test_macros.hpp>

namespace regroup {
namespace {

using std::string_literals::operator""s;

TEST_CASE("plain names and other scripts are shown as they are", "[formats]") {
  CHECK(printable("model.layers.0.weight") == "model.layers.0.weight");
  CHECK(printable("gewicht_\u00fc_\u6743\u91cd_\U0001f600") ==
        "gewicht_\u00fc_\u6743\u91cd_\U0001f600");
  CHECK(printable("").empty());
}

TEST_CASE("control bytes and escapes are spelled out", "[formats]") {
  CHECK(printable("a\0b"s) == R"(a\x00b)");
  CHECK(printable("\x1b[31mred\x1b[0m") == R"(\x1b[31mred\x1b[0m)");
  CHECK(printable("one\ntwo\r\t") == R"(one\x0atwo\x0d\x09)");
  CHECK(printable("\x7f") == R"(\x7f)");
  CHECK(printable("\u009b2J") == R"(\xc2\x9b2J)");
}

TEST_CASE("characters that reorder text are spelled out", "[formats]") {
  CHECK(printable("a\u202eb") == R"(a\xe2\x80\xaeb)");
  CHECK(printable("a\u2066b") == R"(a\xe2\x81\xa6b)");
  CHECK(printable("a\u2028b") == R"(a\xe2\x80\xa8b)");
}

TEST_CASE("invalid UTF-8 is spelled out byte by byte", "[formats]") {
  CHECK(printable("a\xff") == R"(a\xff)");
  CHECK(printable("\xc3") == R"(\xc3)");
  CHECK(printable("\xe2\x82") == R"(\xe2\x82)");
  CHECK(printable("\xc0\xaf") == R"(\xc0\xaf)");
  CHECK(printable("\xe0\x80\xaf") == R"(\xe0\x80\xaf)");
  CHECK(printable("\xc3(") == R"(\xc3()");
}

TEST_CASE("long names are cut between characters", "[formats]") {
  CHECK(printable(std::string(201, 'n')) == std::string(200, 'n') + "...");
  CHECK(printable(std::string(200, 'n')) == std::string(200, 'n'));
  CHECK(printable("\u00fc\u00fc", 1) == "\u00fc...");
  CHECK(printable(std::string(5000, 'n'), 0).size() == 5000);
}

TEST_CASE("invalid sequences that resemble UTF-8 are shown as bytes", "[formats]") {
  CHECK(printable("\xed\xa0\x80") == "\\xed\\xa0\\x80");           // half of a surrogate pair
  CHECK(printable("\xf4\x90\x80\x80") == "\\xf4\\x90\\x80\\x80");  // above U+10FFFF
  CHECK(printable("\U0010ffff") == "\U0010ffff");
}

}  // namespace
}  // namespace regroup
