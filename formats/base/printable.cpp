#include "formats/base/printable.h"

#include <iterator>

#include <fmt/format.h>

#include "formats/base/utf8.h"

namespace regroup {
namespace {

// Length of the well-formed, printable UTF-8 sequence at `at`, or 0.
std::size_t printable_sequence(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(at);
  const std::size_t length = utf8_sequence(text, at);
  if (length <= 1) {
    return lead >= 0x20 && lead != 0x7f ? length : 0;
  }
  const bool c1_control = lead == 0xc2 && byte(at + 1) < 0xa0;
  // U+200E..U+202E and U+2066..U+2069 reorder text on a terminal.
  const bool reorders = lead == 0xe2 && ((byte(at + 1) == 0x80 && byte(at + 2) >= 0x8e) ||
                                         (byte(at + 1) == 0x81 && byte(at + 2) >= 0xa0));
  return c1_control || reorders ? 0 : length;
}

}  // namespace

std::string printable(std::string_view text, std::size_t max_bytes) {
  std::string shown;
  for (std::size_t at = 0; at < text.size();) {
    if (max_bytes != 0 && shown.size() >= max_bytes) {
      return shown + "...";
    }
    const std::size_t length = printable_sequence(text, at);
    if (length == 0) {
      fmt::format_to(std::back_inserter(shown), "\\x{:02x}", static_cast<unsigned char>(text[at]));
      ++at;
    } else {
      shown.append(text.substr(at, length));
      at += length;
    }
  }
  return shown;
}

}  // namespace regroup
