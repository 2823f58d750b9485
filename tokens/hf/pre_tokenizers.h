// The pre-tokenizers of tokenizer.json: they split text into the words that a model encodes.
#pragma once

#include <memory>
#include <vector>

#include "tokens/hf/json_fields.h"
#include "tokens/hf/pieces.h"

namespace regroup {

/// Thread-safe.
class PreTokenizer {
 public:
  PreTokenizer() = default;
  PreTokenizer(const PreTokenizer&) = delete;
  PreTokenizer& operator=(const PreTokenizer&) = delete;
  virtual ~PreTokenizer() = default;
  virtual void apply(Pieces& pieces) const = 0;
};

/// Applied one after another.
using PreTokenizers = std::vector<std::unique_ptr<PreTokenizer>>;

/// Appends what a "pre_tokenizer" object describes, and the members of sequences. Throws kBadInput
/// for kinds and settings that are not supported.
void read_pre_tokenizer(const JsonFields& fields, PreTokenizers& pre_tokenizers);

}  // namespace regroup
