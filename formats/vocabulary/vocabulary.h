// A model's tokenizer in the neutral form that GGUF's metadata hold: tokens with their types,
// merges, special tokens.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace regroup {

/// Numbered as in GGUF (and in SentencePiece).
enum class TokenType : std::int32_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6,
};

/// Names are those of llama.cpp.
struct Vocabulary {
  std::string model = "no_vocab";  ///< "llama" (SentencePiece), "gpt2" (byte-level BPE)
  std::string pre;                 ///< how text is split ahead of BPE: "default", "gpt-2", …
  std::vector<std::string> tokens;
  std::vector<float> scores;        ///< one per token of "llama"; else empty
  std::vector<std::int32_t> types;  ///< TokenType, one per token
  std::vector<std::string> merges;  ///< "left right", best first; of "gpt2" only
  /// Token ids by role: "bos", "eos", "unk", "sep", "pad", "mask", as far as they are known.
  std::map<std::string, std::uint32_t> special_ids;
  std::optional<bool> add_bos, add_eos, add_space_prefix;  ///< empty: left to the loader
  std::string chat_template;                               ///< empty where there is none
  std::vector<std::string> notes;                          ///< what a user should know, a line each

  bool present() const { return model != "no_vocab"; }
};

/// The tokenizer of a model directory whose token embedding has `rows` rows: tokenizer.model, else
/// tokenizer.json, else vocab.json with merges.txt. There are exactly `rows` tokens then: missing
/// ones are placeholders ("[PAD7]", unused), those beyond are left out with a note. Without a
/// tokenizer that can be told this way the vocabulary is absent, with a note. Throws kBadInput for
/// files that are malformed.
Vocabulary read_vocabulary(const std::filesystem::path& directory, std::int64_t rows);

}  // namespace regroup
