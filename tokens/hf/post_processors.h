// The post-processors of tokenizer.json, as far as they concern documents: the tokens at both ends.
#pragma once

#include <cstdint>
#include <optional>

#include "tokens/hf/json_fields.h"

namespace regroup {

/// The tokens before and after a document.
struct EndTokens {
  std::optional<std::uint32_t> first, last;
};

/// What a "post_processor" object adds to a single text. Throws kBadInput for kinds that are not
/// supported, and for more than one token at an end.
EndTokens read_post_processor(const JsonFields& fields);

}  // namespace regroup
