// The added tokens of tokenizer.json, which are found in a text before a model encodes the rest.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tokens/hf/json_fields.h"
#include "tokens/hf/pieces.h"

namespace regroup {

struct AddedToken {
  std::uint32_t id = 0;
  std::string content;
  bool special =
      false;  ///< found in a text only after find_special(); it keeps its place in the search
  bool normalized = false;   ///< looked for after normalization
  bool single_word = false;  ///< only between characters that are not part of a word
  bool strips_left = false, strips_right = false;  ///< takes the white space there, too
};

/// The tokens in the list "added_tokens". Throws kBadInput for malformed or repeated ones.
std::vector<AddedToken> read_added_tokens(const JsonFields& tokenizer);

/// Finds tokens, the leftmost first and of these the longest. Thread-safe.
class AddedTokenFinder {
 public:
  /// A token, and what to look for. Of equal texts the first is found.
  using Sought = std::pair<AddedToken, std::string>;

  AddedTokenFinder() = default;
  explicit AddedTokenFinder(const std::vector<Sought>& sought);

  /// From now on, special tokens are found, too.
  void find_special() { finds_special_ = true; }

  bool empty() const { return tokens_.empty(); }

  /// A section of a text: between tokens, or one of them.
  struct Section {
    std::string_view text;
    const AddedToken* token = nullptr;
  };

  /// Calls `found` for each section of `text`, in order. Empty sections are skipped.
  void for_each_section(std::string_view text,
                        const std::function<void(const Section&)>& found) const;

 private:
  const AddedToken* longest_at(std::string_view text, std::size_t& length) const;

  bool finds_special_ = false;
  std::vector<AddedToken> tokens_;
  ByteTrie trie_;  // from what is sought to places in tokens_
};

}  // namespace regroup
