// The "decoder" of tokenizer.json: from the texts of tokens to text.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace regroup {

/// The text that these tokens make, by the object under "decoder"; without one they are joined by
/// spaces. Bytes that are not UTF-8, such as half a character, are U+FFFD. Throws kBadInput, naming
/// `where` (a file), for decoders that are malformed or not supported.
std::string decoded_text(std::vector<std::string> tokens, const nlohmann::json& decoder,
                         const std::string& where);

}  // namespace regroup
