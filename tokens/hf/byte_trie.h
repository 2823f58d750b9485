// A trie of byte strings, each with a number.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "tokens/hf/number_table.h"

namespace regroup {

class ByteTrie {
 public:
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};

  ByteTrie() { first_.fill(kNone); }

  /// Adds `key`, which is not empty, with `value` below kNone. A key that is there keeps its value.
  void add(std::string_view key, std::uint32_t value);

  bool has_key_with_first(char byte) const { return first_[index_of(byte)] != kNone; }

  /// Calls `found`(length, value) for each key that `text` begins with, shortest first.
  template <typename Found>
  void for_each_prefix(std::string_view text, Found&& found) const {
    if (text.empty()) {
      return;
    }
    std::uint32_t node = first_[index_of(text.front())];
    for (std::size_t length = 1; node != kNone; ++length) {
      if (values_[node] != kNone) {
        found(length, values_[node]);
      }
      if (length == text.size()) {
        return;
      }
      node = child(node, text[length]);
    }
  }

 private:
  static std::size_t index_of(char byte) { return static_cast<unsigned char>(byte); }
  static std::uint64_t edge(std::uint32_t node, char byte) {
    return std::uint64_t{node} << 8 | index_of(byte);
  }
  std::uint32_t child(std::uint32_t node, char byte) const {
    return static_cast<std::uint32_t>(children_.find(edge(node, byte)));  // kNone stays kNone
  }
  std::uint32_t new_node();

  std::array<std::uint32_t, 256> first_;  // the nodes of one byte
  NumberTable children_;
  std::vector<std::uint32_t> values_;  // of each node, kNone unless a key ends there
};

}  // namespace regroup
