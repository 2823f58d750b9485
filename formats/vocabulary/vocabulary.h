// The vocabulary that a GGUF file stores: its tokens, how it is built, and what is stored already.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "formats/base/json.h"
#include "formats/tensors/gguf_metadata.h"

namespace regroup {

// A model's tokenizer in the form of GGUF metadata: tokens with types, merges, special tokens.

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
  TokenType type(std::size_t id) const { return static_cast<TokenType>(types[id]); }
  void set_type(std::size_t id, TokenType type) { types[id] = static_cast<std::int32_t>(type); }
  /// The id in special_ids; nothing if the role has none.
  std::optional<std::uint32_t> special_id(const std::string& role) const;
};

/// Called with the id and the text of a token.
using TokenVisitor = std::function<void(std::int64_t id, std::string_view text)>;

/// How a model's chats are written, in tokens: both sides take turns.
struct ChatForm {
  std::string name;
  std::vector<std::uint32_t> opening;    ///< from the first token to the user's first turn
  std::vector<std::uint32_t> to_answer;  ///< from the end of a user's turn to the answer
  std::vector<std::uint32_t> to_user;    ///< from the end of an answer to the user's next turn
  /// What stands around a prompt, with special tokens spelled out. If `after_prompt` is empty, the
  /// tokenizer does not find these in a text.
  std::string before_prompt = "", after_prompt = "";
};

/// The special tokens around each input of an encoder, if it has such.
struct InputFrame {
  std::optional<std::int64_t> before, after;

  std::int64_t size() const { return (before ? 1 : 0) + (after ? 1 : 0); }
};

/// Reads the tokenizer of a model directory whose token embedding has `rows` rows: tokenizer.model,
/// else tokenizer.json, else a file that tokenizer_json_from() reads. The result has exactly `rows`
/// tokens: missing ones are placeholders ("[PAD7]", unused), extra ones are dropped with a note. If
/// no tokenizer can be represented this way, the vocabulary is absent, with a note. Throws
/// kBadInput for malformed files.
Vocabulary read_vocabulary(const std::filesystem::path& directory, std::int64_t rows);

// A vocabulary as GGUF metadata.

/// Sets the "tokenizer.*" keys from `vocabulary`. llama.cpp requires as many tokens as the token
/// embedding has rows.
void set_vocabulary(GgufMetadata& metadata, const Vocabulary& vocabulary);

/// The vocabulary of a file. Special ids and flags that are absent have llama.cpp's defaults,
/// except add_eos. Throws kBadInput for an unknown tokenizer.ggml.model, lists that are missing or
/// of different lengths, tokens that are not UTF-8, repeated or longer than 4 KiB, scores that are
/// not finite, unknown token types and ids that no token has.
Vocabulary vocabulary_in(const GgufMetadata& metadata);

/// Whether the file contains a tokenizer's vocabulary.
bool has_tokenizer(const GgufMetadata& metadata);

/// Special token ids by role: "bos", "eos", "unk", "sep", "pad", "mask", "cls". Throws kBadInput
/// for ids that are not integers.
std::map<std::string, std::int64_t> special_ids_in(const GgufMetadata& metadata);

// The merges that a SentencePiece BPE makes: it has none in its file, only scores of pieces.

/// Two neighbouring tokens, views of the vocabulary's texts.
using Merge = std::pair<std::string_view, std::string_view>;

/// Whether the token repeats one character, such as SentencePiece's mark of a space.
bool repeats_one_character(std::string_view token);

/// All pairs of normal tokens that make a third, the best first: in descending order of the third's
/// score. Of several pairs that make the same token, those come first that are leftmost wherever
/// they overlap in a text; likewise of tokens with the same score that repeat one character. Throws
/// kBadInput naming `where` if other tokens have the same score and their pairs can overlap, which
/// leaves the order open, and for tokens so long that the search takes seconds.
std::vector<Merge> merges_by_score(const Vocabulary& vocabulary, std::string_view where);

// Shared by the readers of tokenizer files: small JSON files, and spaces in tokens.

inline constexpr std::uint64_t kMaxTokenizerBytes = 256U << 20;

/// The object in `directory`/`name`, or null if there is no such file. Throws kBadInput, also if
/// the file is larger than `max_bytes`.
SortedJson read_json_if_there(const std::filesystem::path& directory, const std::string& name,
                              std::uint64_t max_bytes = kMaxTokenizerBytes);

/// The member if it is true or false.
std::optional<bool> flag_in(const SortedJson& object, std::string_view key);

/// The member if it is a whole number, or the first of a list of them ("eos_token_id": [2, 7]).
std::optional<std::int64_t> first_number_in(const SortedJson& object, std::string_view key);

/// The member as text: the string itself, or its "content" (the form of added tokens). Empty if
/// absent.
std::string token_text(const SortedJson& object, std::string_view key);

/// The chat template of a model directory, at most 4 MiB, empty if there is none; what is left out
/// is added to `notes`. Throws kBadInput.
std::string chat_template_in(const std::filesystem::path& directory,
                             const SortedJson& tokenizer_config, std::vector<std::string>& notes);

/// llama.cpp's name for how a tokenizer.json splits text before BPE; empty if unknown.
std::string pre_tokenizer_name(const SortedJson& tokenizer);

/// SentencePiece's mark for a space.
inline constexpr std::string_view kSpaceOfPieces = "\u2581";

/// `text` with a space for each of these marks.
std::string with_plain_spaces(std::string text);

}  // namespace regroup
