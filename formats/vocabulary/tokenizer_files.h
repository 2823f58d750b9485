// The files of tokenizers: what they hold, what they mean for text, and a GGUF file's vocabulary
// as such files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "formats/base/printable.h"
#include "formats/tensors/gguf_metadata.h"
#include "formats/vocabulary/vocabulary.h"

namespace regroup {

// Tokenizers in files that are older than tokenizer.json: vocab.json with merges.txt, vocab.txt,
// and tiktoken's ranks.

/// The file of a directory's tokenizer: the first that exists of tokenizer.json,
/// tokenizer.model, vocab.json (with merges.txt) and vocab.txt. Without `reads_json`,
/// tokenizer.model comes first.
std::optional<std::filesystem::path> tokenizer_file_in(const std::filesystem::path& directory,
                                                       bool reads_json = true);

/// Whether a file is one that tokenizer_json_from() reads: vocab.json, vocab.txt, or lines of a
/// token in Base64 and its rank, which Meta calls tokenizer.model.
bool is_vocabulary_file(const std::filesystem::path& file);

/// The tokenizer.json that gives the ids of such a file, as transformers makes it for the class
/// that tokenizer_config.json names, or else for the model_type of config.json (without either,
/// GPT-2's or BERT's). Special tokens are those that the files name and the class's own. Throws
/// kBadInput for malformed files, kUsage naming a class for which such files are read differently.
nlohmann::json tokenizer_json_from(const std::filesystem::path& file);

// Tokens that other files add to a tokenizer: tokenizer_config.json and added_tokens.json.

struct AddedToken {
  std::int64_t id = 0;
  std::string content;
  bool special = false;                 ///< not a part of text
  bool normalized = false;              ///< looked for after normalization
  bool single_word = false;             ///< only between characters that are not part of a word
  bool lstrip = false, rstrip = false;  ///< takes the white space there, too
  std::string where;                    ///< the file, for messages
};

/// The tokens of "added_tokens_decoder" in `directory`/tokenizer_config.json, with the flags there,
/// and those of added_tokens.json that it does not have. The latter are special if a config names
/// them as a special token. Throws kBadInput for malformed files, and for a token with two ids.
std::vector<AddedToken> added_tokens_beside(const std::filesystem::path& directory);

/// An entry of tokenizer.json's "added_tokens" as a token, and a token as an entry. The former
/// throws kBadInput for what is no token.
AddedToken listed_token(const SortedJson& token, const std::string& where);
nlohmann::json json_of(const AddedToken& token);

/// The text of the token with a role ("bos", "eos", …) that tokenizer_config.json or
/// special_tokens_map.json names; empty for none. Throws kBadInput for malformed files.
std::string named_token(const std::filesystem::path& directory, const std::string& role);

// The tokenizer of a GGUF file, or of Meta's, as the files of a Hugging Face directory.

/// tokenizer.json, tokenizer_config.json (special tokens, chat template) and generation_config.json
/// (the ids that end a generation: the end of text, and `more_ends`, such as the end of a turn).
/// Throws kBadInput like tokenizer_json_of().
std::vector<NamedText> tokenizer_files_of(const Vocabulary& vocabulary, std::string_view where,
                                          const std::vector<std::int64_t>& more_ends);

/// The same of the vocabulary in GGUF metadata. Throws kBadInput also like vocabulary_in().
std::vector<NamedText> tokenizer_files_of(const GgufMetadata& metadata);

/// The tokenizer.json that gives the vocabulary's ids: normalizer, pre-tokenizer, model, decoder,
/// post-processor. Control and unknown tokens become special added tokens, user-defined ones
/// ordinary added tokens. `vocabulary` is one of vocabulary_in(). Error messages begin with `where`
/// (a file name). Throws kBadInput for a vocabulary that determines no ids: an unknown
/// pre-tokenization, scores that leave the order of merges open, some but not all byte tokens, no
/// unknown token where one is needed.
nlohmann::json tokenizer_json_of(const Vocabulary& vocabulary, std::string_view where);

// How text is split before byte-level BPE, by llama.cpp's names (tokenizer.ggml.pre).

struct PreTokenization {
  std::string_view names;               ///< separated by spaces; the first is the one to write
  nlohmann::json (*steps)() = nullptr;  ///< the list of tokenizer.json's pre-tokenizers
  bool composes = false;                ///< the text is brought to NFC first
  bool whole_words = false;             ///< words of the vocabulary are not merged
  bool adds_bos = false;                ///< if the file does not say
};

/// Whether `name` is one of `names`, which are separated by spaces.
bool is_listed(std::string_view name, std::string_view names);

/// The one with that name, or null. Without a name it is llama.cpp's default.
const PreTokenization* find_pre_tokenization(std::string_view name);

/// All names, separated by spaces.
std::string pre_tokenization_names();

// What encodes in a tokenizer.json: its members "normalizer", "pre_tokenizer" and "model". `vocab`
// is an object from token to id.

/// Byte-level BPE. `merges` is a list of pairs.
nlohmann::json byte_level_tokenizer(nlohmann::json vocab, nlohmann::json merges,
                                    const PreTokenization& pre);

/// BERT's WordPiece. If `strip_accents` is null, accents go where text is lower-cased.
nlohmann::json word_piece_tokenizer(nlohmann::json vocab, std::string_view unknown, bool lower_case,
                                    nlohmann::json strip_accents);

// GPT-2's way to write bytes as characters, so that every byte is printable.

/// Each byte of `text` as its character: "é " becomes "Ã©Ġ".
std::string byte_level_text(std::string_view text);

/// Appends it to `result`.
void append_byte_level(std::string_view text, std::string& result);

}  // namespace regroup
