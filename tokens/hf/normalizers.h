// The normalizers of tokenizer.json: text to text, before it is split.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tokens/hf/json_fields.h"
#include "tokens/hf/pieces.h"

namespace regroup {

/// A document, or a part of one between added tokens.
struct NormalText {
  std::string text;
  Origin origin;
};

/// Thread-safe.
class Normalizer {
 public:
  Normalizer() = default;
  Normalizer(const Normalizer&) = delete;
  Normalizer& operator=(const Normalizer&) = delete;
  virtual ~Normalizer() = default;
  virtual void apply(NormalText& text) const = 0;
};

/// Applied one after another.
using Normalizers = std::vector<std::unique_ptr<Normalizer>>;

/// Appends what a "normalizer" object describes, and the members of sequences. Throws kBadInput for
/// kinds and settings that are not supported.
void read_normalizer(const JsonFields& fields, Normalizers& normalizers);

/// SentencePiece's rules, from the object of a Precompiled normalizer.
std::unique_ptr<Normalizer> read_charsmap_normalizer(const JsonFields& fields);

}  // namespace regroup
