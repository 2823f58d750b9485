#include "tokens/hf/byte_level.h"

#include <array>

#include "tokens/hf/unicode.h"

namespace regroup {
namespace {

// Printable bytes of Latin-1 are the character of the same number. The others get the characters
// from U+0100 on, in order.
std::array<std::string, 256> characters_of_bytes() {
  std::array<std::string, 256> characters;
  char32_t next = 0x100;
  for (char32_t byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte != 0xad);
    append_character(characters[byte], printable ? byte : next++);
  }
  return characters;
}

}  // namespace

void append_byte_level(std::string_view text, std::string& result) {
  static const std::array<std::string, 256> characters = characters_of_bytes();
  for (const char byte : text) {
    result += characters[static_cast<unsigned char>(byte)];
  }
}

std::string byte_level_text(std::string_view text) {
  std::string result;
  result.reserve(text.size() + text.size() / 4);
  append_byte_level(text, result);
  return result;
}

}  // namespace regroup
