// A tokenizer with tokens that other files add to it.
#pragma once

#include <memory>
#include <vector>

#include "formats/vocabulary/added_tokens_files.h"
#include "tokens/tokenizer.h"

namespace regroup {

/// Finds `added` in a text, except special ones, and has `inner` encode what is between them. Such
/// a section begins as a document does only if `sections_begin` is true. The ids of added tokens
/// take precedence over those of `inner`. Throws kBadInput for malformed tokens, kUsage in a build
/// without utf8proc and PCRE2.
std::unique_ptr<Tokenizer> with_added_tokens(std::unique_ptr<Tokenizer> inner,
                                             const std::vector<StoredAddedToken>& added,
                                             bool sections_begin);

}  // namespace regroup
