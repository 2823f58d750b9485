// Small SentencePiece models for tests, field by field: sentencepiece_model.proto.
#pragma once

#include <string>
#include <vector>

namespace regroup {

/// A piece as in the file; types are those of formats/vocabulary/sentencepiece.h.
struct BuiltPiece {
  std::string text;
  float score = 0.0F;
  int type = 1;
};

struct BuiltSentencePiece {
  std::vector<BuiltPiece> pieces;
  bool unigram = false;  // else BPE
  bool adds_space_prefix = true;
  bool removes_extra_spaces = false;
  std::string charsmap = {};  // precompiled, as in tests/charsmap_builder.h; empty: none

  std::string bytes() const;
};

/// A BPE of Llama's kind: <unk> 0, <s> 1, </s> 2, all bytes from 3 on, then the pieces named, each
/// scored below the one before; white space stays as it is.
BuiltSentencePiece llama_like(const std::vector<std::string>& pieces);

}  // namespace regroup
