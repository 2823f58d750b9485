#include "tokens/utf8_text.h"

#include <catch2/catch_test_macros.hpp>

namespace regroup {

TEST_CASE("UTF-8 is valid up to the first byte that belongs to no sequence", "[tokens]") {
  CHECK(valid_utf8_prefix("") == 0);
  CHECK(valid_utf8_prefix("plain\n") == 6);
  const std::string all = "\x7f\u0080\u07ff\u0800\ud7ff\ue000\uffff\U00010000\U0010ffff";
  CHECK(valid_utf8_prefix(all) == all.size());
  CHECK(valid_utf8_prefix("ab\x80") == 2);          // nothing begins with it
  CHECK(valid_utf8_prefix("ab\xc3") == 2);          // cut short
  CHECK(valid_utf8_prefix("ab\xe2\x82 c") == 2);    // likewise, in the middle
  CHECK(valid_utf8_prefix("ab\xc0\x80") == 2);      // too long a form
  CHECK(valid_utf8_prefix("ab\xe0\x9f\xbf") == 2);  // likewise
  CHECK(valid_utf8_prefix("ab\xf0\x8f\xbf\xbf") == 2);
  CHECK(valid_utf8_prefix("ab\xed\xa0\x80") == 2);      // half of a surrogate pair
  CHECK(valid_utf8_prefix("ab\xf4\x90\x80\x80") == 2);  // above U+10FFFF
  CHECK(valid_utf8_prefix("ab\xff") == 2);
}

TEST_CASE("each byte that is no UTF-8 is replaced, and all else kept", "[tokens]") {
  CHECK(with_replacements("a\u00e4b") == "a\u00e4b");
  CHECK(with_replacements("a\xff\xfe"
                          "b") == "a\ufffd\ufffdb");
  CHECK(with_replacements("\xe2\x82") == "\ufffd\ufffd");
  CHECK(with_replacements("\xe2\x82\u00e4") == "\ufffd\ufffd\u00e4");
}

TEST_CASE("text is cut ahead of white space, else between characters", "[tokens]") {
  CHECK(cut_of_text("short", 10) == 5);
  CHECK(cut_of_text("one two three", 10) == 7);
  CHECK(cut_of_text("one two\n\n  three", 10) == 7);       // ahead of all of it
  CHECK(cut_of_text("onetwothreefour", 10) == 10);         // none there
  CHECK(cut_of_text("\u20ac\u20ac\u20ac\u20ac", 7) == 6);  // three bytes each
  CHECK(cut_of_text("\x80\x80\x80\x80\x80\x80", 4) > 0);   // and no loop without end
}

}  // namespace regroup
