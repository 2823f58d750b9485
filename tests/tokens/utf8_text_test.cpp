#include <catch2/catch_test_macros.hpp>

#include "formats/base/printable.h"
#include "tokens/text_stream.h"

namespace regroup {

TEST_CASE("the valid prefix ends at the first byte outside a UTF-8 sequence", "[tokens]") {
  CHECK(valid_utf8_prefix("") == 0);
  CHECK(valid_utf8_prefix("plain\n") == 6);
  const std::string all = "\x7f\u0080\u07ff\u0800\ud7ff\ue000\uffff\U00010000\U0010ffff";
  CHECK(valid_utf8_prefix(all) == all.size());
  CHECK(valid_utf8_prefix("ab\x80") == 2);          // no sequence begins with it
  CHECK(valid_utf8_prefix("ab\xc3") == 2);          // truncated
  CHECK(valid_utf8_prefix("ab\xe2\x82 c") == 2);    // truncated in the middle
  CHECK(valid_utf8_prefix("ab\xc0\x80") == 2);      // overlong
  CHECK(valid_utf8_prefix("ab\xe0\x9f\xbf") == 2);  // overlong
  CHECK(valid_utf8_prefix("ab\xf0\x8f\xbf\xbf") == 2);
  CHECK(valid_utf8_prefix("ab\xed\xa0\x80") == 2);      // half of a surrogate pair
  CHECK(valid_utf8_prefix("ab\xf4\x90\x80\x80") == 2);  // above U+10FFFF
  CHECK(valid_utf8_prefix("ab\xff") == 2);
}

TEST_CASE("each invalid byte is replaced and other text kept", "[tokens]") {
  CHECK(with_replacements("a\u00e4b") == "a\u00e4b");
  CHECK(with_replacements("a\xff\xfe"
                          "b") == "a\ufffd\ufffdb");
  CHECK(with_replacements("\xe2\x82") == "\ufffd\ufffd");
  CHECK(with_replacements("\xe2\x82\u00e4") == "\ufffd\ufffd\u00e4");
}

TEST_CASE("text is cut before white space or else between characters", "[tokens]") {
  CHECK(cut_of_text("short", 10) == 5);
  CHECK(cut_of_text("one two three", 10) == 7);
  CHECK(cut_of_text("one two\n\n  three", 10) == 7);       // before all of it
  CHECK(cut_of_text("one two! six\n\nten", 14) == 8);      // "!" and a line end may be one token
  CHECK(cut_of_text("onetwosix  ten\nsix", 15) == 14);     // no single space in the second half
  CHECK(cut_of_text("onetwothreefour", 10) == 10);         // contains none
  CHECK(cut_of_text("\u20ac\u20ac\u20ac\u20ac", 7) == 6);  // three bytes each
  CHECK(cut_of_text("\x80\x80\x80\x80\x80\x80", 4) > 0);   // terminates
}

}  // namespace regroup
