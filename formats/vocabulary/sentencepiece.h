// SentencePiece models, and the map of characters by which they normalise.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace regroup {

// SentencePiece's model file: a protobuf message. Only the pieces and a few settings are read.
// https://github.com/google/sentencepiece/blob/master/src/sentencepiece_model.proto

struct SentencePiece {
  std::string text;
  float score = 0.0F;
  int type = 1;  ///< 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte
};

struct SentencePieceModel {
  std::vector<SentencePiece> pieces;  ///< the index is the token id
  bool unigram = true;                ///< false: BPE; true is the format's default
  bool adds_space_prefix = true;      ///< "dummy prefix"; true is the format's default
  bool removes_extra_spaces = true;   ///< trims the text and collapses runs of spaces
};

/// Parses the contents of a model file. Error messages begin with `where` (the file name). Throws
/// kBadInput if `bytes` is not such a message, has no pieces, or would crash Google's library: too
/// many, too long or too deeply nested pieces, or a normaliser map with offsets outside itself.
SentencePieceModel parse_sentencepiece_model(std::string_view bytes, std::string_view where);

// The normalisation rules in a SentencePiece model: a double-array trie of source strings, and the
// replacements. Format: https://github.com/s-yata/darts-clone

/// One entry of the double array. A node is identified by its base. The entry of its child for byte
/// c is at base ^ c and has the label c. The entry of its value is at the base itself.
struct CharsmapUnit {
  std::uint32_t bits = 0;

  bool is_value() const { return bits >> 31 != 0; }
  std::uint32_t label() const { return bits & 0xff; }
  bool ends_rule() const { return (bits >> 8 & 1) != 0; }
  std::uint32_t offset() const { return bits >> 10 << ((bits & 1U << 9) >> 6); }
  std::uint32_t value() const { return bits & 0x7fffffff; }
};

/// Validates a precompiled_charsmap, because SentencePiece follows its offsets unchecked. Throws
/// kBadInput unless every walk through the trie, for any text, stays inside the array and ends in a
/// replacement of bounded length. Error messages begin with `where` (the file name). An empty map
/// (no rules) is valid.
void check_charsmap(std::string_view charsmap, std::string_view where);

}  // namespace regroup
