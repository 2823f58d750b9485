// A text on its way through a tokenizer, cut into pieces.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace regroup {

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

/// Appends the parts of a piece to a list. The parts cover the piece.
using FindParts = std::function<void(std::string_view piece, std::vector<Part>& parts)>;

/// Splits each piece.
void split_pieces(Pieces& pieces, SplitBehavior behavior, const FindParts& find);

/// The same by single characters. For kContiguous, runs of matching characters stay together.
void split_pieces(Pieces& pieces, SplitBehavior behavior, bool (*matches)(char32_t));

/// Writes the text anew, piece by piece: `rewrite` appends a piece's new text to its last argument.
void rewrite_pieces(Pieces& pieces,
                    const std::function<void(std::string_view piece, const Origin& origin,
                                             std::string& text)>& rewrite);

}  // namespace regroup
