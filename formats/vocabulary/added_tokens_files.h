// Tokens that other files add to a tokenizer: tokenizer_config.json and added_tokens.json.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace regroup {

struct StoredAddedToken {
  std::int64_t id = 0;
  std::string content;
  bool special = false;
  bool normalized = false, single_word = false, lstrip = false, rstrip = false;
  std::string where;  ///< the file, for messages
};

/// The tokens of "added_tokens_decoder" in `directory`/tokenizer_config.json, with the flags there,
/// and those of added_tokens.json that it does not have. The latter are special if a config names
/// them as a special token. Throws kBadInput for malformed files, and for a token with two ids.
std::vector<StoredAddedToken> added_tokens_beside(const std::filesystem::path& directory);

/// The token as an entry of tokenizer.json's "added_tokens".
nlohmann::json json_of(const StoredAddedToken& token);

/// The text of the token with a role ("bos", "eos", …) that tokenizer_config.json or
/// special_tokens_map.json names; empty for none. Throws kBadInput for malformed files.
std::string named_token(const std::filesystem::path& directory, const std::string& role);

}  // namespace regroup
