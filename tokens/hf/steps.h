// The steps of tokenizer.json around its model: the normalizers before text is split, the pre-
// tokenizers that split it into the words that a model encodes, the post-processor and the decoder.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "tokens/hf/json_fields.h"
#include "tokens/hf/pieces.h"

namespace regroup {

/// A document, or a part of one between added tokens.
struct NormalText {
  std::string text;
  Origin origin;
};

/// Appends the step that an object describes by one of `readers`, a map from kinds to functions of
/// its fields, or the steps in the list `members` of a Sequence: 32 in all. Throws kBadInput for
/// more, and for other kinds, of which it says that `needed` is needed.
template <typename Readers, typename Step>
void read_steps(const JsonFields& fields, std::string_view members, std::string_view needed,
                const Readers& readers, std::vector<Step>& steps) {
  constexpr std::size_t kMostSteps = 32;
  const std::string type = fields.text("type");
  if (steps.size() == kMostSteps) {
    fields.refuse_all(fmt::format("more than {} {}", kMostSteps, members));
  }
  if (type == "Sequence") {
    fields.allow({"type", members});
    for (const JsonFields& member : fields.objects(members)) {
      read_steps(member, members, needed, readers, steps);
    }
  } else if (const auto reader = readers.find(type); reader != readers.end()) {
    steps.push_back(reader->second(fields));
  } else {
    fields.refuse("type", needed);
  }
}

/// Changes a text. Thread-safe.
using Normalizer = std::function<void(NormalText&)>;

/// Splits or rewrites pieces. Thread-safe.
using PreTokenizer = std::function<void(Pieces&)>;

/// Append what a "normalizer" or a "pre_tokenizer" object describes, and the members of sequences,
/// to steps that are applied one after another. Throw kBadInput for kinds and settings that are not
/// supported.
void read_normalizer(const JsonFields& fields, std::vector<Normalizer>& normalizers);
void read_pre_tokenizer(const JsonFields& fields, std::vector<PreTokenizer>& pre_tokenizers);

/// The tokens before and after a document.
struct EndTokens {
  std::optional<std::uint32_t> first, last;
};

/// What a "post_processor" object adds to a single text. Throws kBadInput for kinds that are not
/// supported, and for more than one token at an end.
EndTokens read_post_processor(const JsonFields& fields);

/// The text that these tokens make, by the object under "decoder"; without one they are joined by
/// spaces. Bytes that are not UTF-8, such as half a character, are U+FFFD. Throws kBadInput, naming
/// `where` (a file), for decoders that are malformed or not supported.
std::string decoded_text(std::vector<std::string> tokens, const nlohmann::json& decoder,
                         const std::string& where);

}  // namespace regroup
