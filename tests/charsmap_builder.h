// A precompiled_charsmap for tests: its double array, with a block of 256 units for each node.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace regroup {

class BuiltCharsmap {
 public:
  static constexpr std::uint32_t kUnused = 1U << 31;  // marked as a value, so a child of no node
  std::vector<std::uint32_t> units = std::vector<std::uint32_t>(512, kUnused);
  std::string replacements = std::string("x\0", 2);
  std::optional<std::size_t> trie_bytes;  ///< replaces the true size

  /// The root's children are in the second block.
  BuiltCharsmap() { units[0] = child(0, 256, false); }

  /// A unit whose children have the base `place ^ offset`.
  static std::uint32_t child(unsigned char label, std::uint32_t offset, bool ends_rule) {
    const bool wide = offset >= 1U << 21;
    return (wide ? offset >> 8 : offset) << 10 | (wide ? 1U << 9 : 0U) |
           (ends_rule ? 1U << 8 : 0U) | label;
  }

  /// Replaces `text` by the string that begins at `replacement`. The text must not contain NUL.
  void add_rule(const std::string& text, std::uint32_t replacement) {
    std::uint32_t base = 256;
    for (std::size_t i = 0; i < text.size(); ++i) {
      const auto letter = static_cast<unsigned char>(text[i]);
      const std::uint32_t place = base ^ letter;
      if (units[place] == kUnused) {
        units[place] = child(letter, place ^ static_cast<std::uint32_t>(units.size()), false);
        units.resize(units.size() + 256, kUnused);
      }
      base = place ^ units[place] >> 10;
      if (i + 1 == text.size()) {
        units[place] |= 1U << 8;
        units[base] = 1U << 31 | replacement;
      }
    }
  }

  std::string bytes() const {
    std::string trie;
    for (const std::uint32_t unit : units) {
      trie += number(unit);
    }
    return number(static_cast<std::uint32_t>(trie_bytes.value_or(trie.size()))) + trie +
           replacements;
  }

 private:
  static std::string number(std::uint32_t value) {
    std::string bytes;
    for (int byte = 0; byte < 4; ++byte) {
      bytes += static_cast<char>(value >> 8 * byte & 0xff);
    }
    return bytes;
  }
};

}  // namespace regroup
