// SentencePiece's model file: a protobuf message. Only the pieces and a few settings are read.
// https://github.com/google/sentencepiece/blob/master/src/sentencepiece_model.proto
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace regroup {

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

}  // namespace regroup
