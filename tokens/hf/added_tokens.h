// The added tokens of tokenizer.json, which are found in a text before a model encodes the rest.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "formats/vocabulary/tokenizer_files.h"
#include "tokens/hf/json_fields.h"
#include "tokens/hf/pieces.h"

namespace regroup {

/// The tokens in the list "added_tokens". Throws kBadInput for malformed or repeated ones.
std::vector<AddedToken> read_added_tokens(const JsonFields& tokenizer);

/// Finds tokens, the leftmost first and of these the longest. Thread-safe.
class AddedTokenFinder {
 public:
  /// A token, and what to look for. Of equal texts the first is found.
  using Sought = std::pair<AddedToken, std::string>;

  AddedTokenFinder() = default;
  explicit AddedTokenFinder(const std::vector<Sought>& sought);

  /// From now on, special tokens are found, too. Until then they are passed over at their places.
  void find_special() { finds_special_ = true; }

  bool empty() const { return tokens_.empty(); }

  /// Encodes what is between tokens. `first`: the text begins with it.
  using Between = std::function<void(std::string_view section, bool first)>;

  /// Appends the ids of the tokens in `text` to `ids`, and calls `between` for each section without
  /// one, in order. Empty sections are skipped.
  void encode(std::string_view text, std::vector<std::uint32_t>& ids, const Between& between) const;

 private:
  const AddedToken* longest_at(std::string_view text, std::size_t& length) const;

  bool finds_special_ = false;
  std::vector<AddedToken> tokens_;
  ByteTrie trie_;  // from what is sought to places in tokens_
};

}  // namespace regroup
