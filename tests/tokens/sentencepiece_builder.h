// Small SentencePiece models for tests, written field by field as in sentencepiece_model.proto.
#pragma once

#include <string>
#include <vector>

namespace regroup {

/// A piece as in the file. The types are those of formats/vocabulary/sentencepiece.h.
struct BuiltPiece {
  std::string text;
  float score = 0.0F;
  int type = 1;
};

struct BuiltSentencePiece {
  std::vector<BuiltPiece> pieces;
  bool unigram = false;  // otherwise BPE
  bool adds_space_prefix = true;
  bool removes_extra_spaces = false;
  std::string charsmap = {};  // as in tests/charsmap_builder.h; empty: none

  std::string bytes() const;
};

/// A BPE like Llama's: <unk> 0, <s> 1, </s> 2, all bytes from 3 on, then the given pieces, each
/// with a lower score than the one before. White space is kept.
BuiltSentencePiece llama_like(const std::vector<std::string>& pieces);

}  // namespace regroup
