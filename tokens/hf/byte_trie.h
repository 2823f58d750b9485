// A trie of byte strings, each with a number.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace regroup {

/// Takes 9 bytes for each node: a vocabulary's bytes are nearly as many. A node's children follow
/// one another, and the children of different nodes are in the order of the nodes.
class ByteTrie {
 public:
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};

  using Key = std::pair<std::string_view, std::uint32_t>;

  ByteTrie() { first_.fill(kNone); }

  /// Makes a trie of keys, which are not empty and have values below kNone. Of equal keys the first
  /// counts.
  explicit ByteTrie(std::vector<Key> keys);

  bool has_key_with_first(char byte) const { return first_[index_of(byte)] != kNone; }

  /// Calls `found`(length, value) for each key that `text` begins with, shortest first. Returns how
  /// many bytes it looked at.
  template <typename Found>
  std::size_t for_each_prefix(std::string_view text, Found&& found) const {
    if (text.empty()) {
      return 0;
    }
    std::uint32_t node = first_[index_of(text.front())];
    std::size_t length = 1;
    for (; node != kNone; ++length) {
      if (values_[node] != kNone) {
        found(length, values_[node]);
      }
      if (length == text.size()) {
        break;
      }
      node = child(node, static_cast<unsigned char>(text[length]));
    }
    return length;
  }

 private:
  static std::size_t index_of(char byte) { return static_cast<unsigned char>(byte); }

  // Children are in the order of their bytes.
  std::uint32_t child(std::uint32_t node, unsigned char byte) const {
    constexpr std::uint32_t kFew = 8;
    std::uint32_t begin = children_[node], end = children_[node + 1];
    while (end - begin > kFew) {
      const std::uint32_t middle = begin + (end - begin) / 2;
      (bytes_[middle] <= byte ? begin : end) = middle;
    }
    for (; begin < end; ++begin) {
      if (bytes_[begin] == byte) {
        return begin;
      }
    }
    return kNone;
  }

  std::array<std::uint32_t, 256> first_{};  // the nodes of one byte
  std::vector<std::uint32_t> children_;     // the first child of each node, and the number of nodes
  std::vector<std::uint32_t> values_;       // of each node, kNone unless a key ends there
  std::vector<unsigned char> bytes_;        // the last byte of each node
};

}  // namespace regroup
