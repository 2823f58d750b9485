// How text is split before byte-level BPE, by llama.cpp's names (tokenizer.ggml.pre).
#pragma once

#include <span>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace regroup {

struct PreTokenization {
  std::string_view names;               ///< separated by spaces; the first is the one to write
  nlohmann::json (*steps)() = nullptr;  ///< the list of tokenizer.json's pre-tokenizers
  bool composes = false;                ///< the text is brought to NFC first
  bool whole_words = false;             ///< words of the vocabulary are not merged
  bool adds_bos = false;                ///< if the file does not say
};

/// All that are known.
std::span<const PreTokenization> pre_tokenizations();

/// The one with that name, or null. Without a name it is llama.cpp's default.
const PreTokenization* find_pre_tokenization(std::string_view name);

// GPT-2's way to write bytes as characters, so that every byte is printable.

/// Each byte of `text` as its character: "é " becomes "Ã©Ġ".
std::string byte_level_text(std::string_view text);

/// Appends it to `result`.
void append_byte_level(std::string_view text, std::string& result);

/// All names, separated by spaces.
std::string pre_tokenization_names();

}  // namespace regroup
