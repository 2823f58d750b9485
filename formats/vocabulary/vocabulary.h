// A model's tokenizer in the form of GGUF metadata: tokens with types, merges, special tokens.
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

/// Names follow llama.cpp.
struct Vocabulary {
  /// "llama" (SentencePiece's BPE), "gpt2" (byte-level BPE), "t5" (Unigram), "bert" (WordPiece)
  std::string model = "no_vocab";
  std::string pre;  ///< how text is split before BPE: "default", "gpt-2", …
  std::vector<std::string> tokens;
  std::vector<float> scores;        ///< "llama", "t5": one per token; else empty
  std::vector<std::int32_t> types;  ///< TokenType, one per token
  std::vector<std::string> merges;  ///< "gpt2": "left right", best first; else empty
  /// Known token ids by role: "bos", "eos", "unk", "sep", "pad", "mask", "cls".
  std::map<std::string, std::uint32_t> special_ids;
  std::optional<bool> add_bos, add_eos, add_space_prefix;  ///< empty: left to the loader
  std::string chat_template;                               ///< empty where there is none
  // Only read from GGUF files, and not written:
  std::string charsmap;                           ///< "t5": precompiled_charsmap, or empty
  std::optional<bool> removes_extra_spaces;       ///< "t5"
  std::optional<bool> lower_case, strip_accents;  ///< "bert"
  std::vector<std::string> notes;                 ///< notes for the user, one line each

  bool present() const { return model != "no_vocab"; }
};

/// Reads the tokenizer of a model directory whose token embedding has `rows` rows: tokenizer.model,
/// else tokenizer.json, else vocab.json with merges.txt. The result has exactly `rows` tokens:
/// missing ones are placeholders ("[PAD7]", unused), extra ones are dropped with a note. If no
/// tokenizer can be represented this way, the vocabulary is absent, with a note. Throws kBadInput
/// for malformed files.
Vocabulary read_vocabulary(const std::filesystem::path& directory, std::int64_t rows);

}  // namespace regroup
