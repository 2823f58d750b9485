// SentencePiece's model file: a protobuf message, of which only the pieces and two settings are
// read. https://github.com/google/sentencepiece/blob/master/src/sentencepiece_model.proto
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
  std::vector<SentencePiece> pieces;  ///< token ids are their places
  bool unigram = true;                ///< else BPE; the format's default
  bool adds_space_prefix = true;      ///< before the text ("dummy prefix"); the format's default
  bool removes_extra_spaces = true;   ///< at the ends of the text, and of several all but one
};

/// Reads a whole file's bytes. `where` (the file's name) opens error messages. Throws kBadInput for
/// what is no such message, holds no pieces, or what Google's library would crash of: pieces too
/// many, too long or nested too deep, and a normaliser's map that leads out of itself.
SentencePieceModel parse_sentencepiece_model(std::string_view bytes, std::string_view where);

}  // namespace regroup
