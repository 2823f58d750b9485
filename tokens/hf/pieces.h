// Pieces of a text, the bytes they stand for, and a trie over bytes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace regroup {

/// A trie of byte strings, each with a number. Takes 9 bytes for each node: a vocabulary's bytes
/// are nearly as many. A node's children follow one another, and the children of different nodes
/// are in the order of the nodes.
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

// A text on its way through a tokenizer, cut into pieces.

/// Where a text came from, which decides whether something is put in front of it.
struct Origin {
  bool at_start = true;    ///< its first character is the first of the document
  bool continues = false;  ///< it continues a document whose beginning was encoded before
};

struct Piece {
  std::uint32_t begin = 0, end = 0;  ///< bytes of the text
  Origin origin;
};

/// The pieces are in order and not empty. They need not cover the text.
struct Pieces {
  std::string text;
  std::vector<Piece> list;

  std::string_view view(const Piece& piece) const {
    return std::string_view(text).substr(piece.begin, piece.end - piece.begin);
  }
};

/// What becomes of the matches of a pattern by which text is split.
enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

/// A part of a piece, which matches the pattern or is between two matches.
struct Part {
  Part(std::size_t from, std::size_t to, bool matching)
      : begin(static_cast<std::uint32_t>(from)),
        end(static_cast<std::uint32_t>(to)),
        matches(matching) {}
  std::uint32_t begin, end;  ///< relative to the piece
  bool matches;
};

/// Appends what lies between the end of the last part and `end`, if it is not empty.
inline void append_until(std::vector<Part>& parts, std::size_t end, bool matches) {
  const std::size_t begin = parts.empty() ? 0 : parts.back().end;
  if (begin < end) {
    parts.push_back({begin, end, matches});
  }
}

/// Appends the parts of a piece to a list. The parts cover the piece.
using FindParts = std::function<void(std::string_view piece, std::vector<Part>& parts)>;

/// Splits each piece.
void split_pieces(Pieces& pieces, SplitBehavior behavior, const FindParts& find);

/// Writes the text anew, piece by piece: `rewrite` appends a piece's new text to its last argument.
void rewrite_pieces(Pieces& pieces,
                    const std::function<void(std::string_view piece, const Origin& origin,
                                             std::string& text)>& rewrite);

}  // namespace regroup
