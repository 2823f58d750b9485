// Encoding in fuzz targets.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "tokens/tokenizer.h"

namespace regroup {

/// Aborts unless the ids are those of the vocabulary, and the same from the cache.
inline void encode_twice(const Tokenizer& tokenizer, std::string_view text, bool begins_document) {
  std::vector<std::uint32_t> ids, again;
  tokenizer.encode(text, begins_document, ids);
  tokenizer.encode(text, begins_document, again);
  const bool known = std::all_of(ids.begin(), ids.end(), [&](std::uint32_t id) {
    return id < static_cast<std::uint64_t>(tokenizer.vocabulary());
  });
  if (ids != again || !known) {
    ::abort();
  }
}

}  // namespace regroup
