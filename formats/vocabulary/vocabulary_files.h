// Tokenizers in files that are older than tokenizer.json: vocab.json with merges.txt, vocab.txt,
// and tiktoken's ranks.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace regroup {

/// The file of a directory's tokenizer: of those that are there, the first of tokenizer.json,
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

}  // namespace regroup
