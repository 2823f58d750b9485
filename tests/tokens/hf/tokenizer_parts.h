// Parts of tokenizer.json for tests.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "tokens/tokenizer.h"

namespace regroup {

/// A BPE without merges: each character of the list has its place as id. Others are left out.
inline nlohmann::json character_tokenizer(const std::vector<std::string>& characters) {
  nlohmann::json vocabulary = nlohmann::json::object();
  for (std::size_t i = 0; i < characters.size(); ++i) {
    vocabulary[characters[i]] = i;
  }
  return {{"added_tokens", nlohmann::json::array()},
          {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", nlohmann::json::array()}}}};
}

/// An added token with these members, and the usual ones for all others.
inline nlohmann::json added_token(const nlohmann::json& members) {
  nlohmann::json token{{"special", false},
                       {"normalized", false},
                       {"single_word", false},
                       {"lstrip", false},
                       {"rstrip", false}};
  token.update(members);
  return token;
}

/// The tokenizer, read as if from a file.
inline std::unique_ptr<Tokenizer> opened(const nlohmann::json& tokenizer) {
  return make_json_tokenizer(nlohmann::json::parse(tokenizer.dump()), "tokenizer.json");
}

}  // namespace regroup
