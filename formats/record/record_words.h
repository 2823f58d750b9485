// Facts of a record in words. A record is a stranger's text: only plain words, numbers and heads
// are shown, so that they are safe in Markdown, HTML and a terminal.
#pragma once

#include <string>

#include "formats/record/conversion_record.h"

namespace regroup {

inline constexpr std::string_view kNotRecorded = "not recorded";

/// A word of small letters, digits and "-._", at most 40 of them; otherwise kNotRecorded.
std::string plain_word(const Json& value);

/// A number from 0 on.
std::string plain_count(const Json& value);

/// A number with four decimals.
std::string plain_loss(const Json& value);

/// Kv heads: "8", "8, 4" (by layer) or, of an encoder-decoder, "decoder 8, encoder 4".
std::string plain_heads(const Json& value);

/// One entry of ConversionRecord::steps(): "converted from 8 kv heads to 4 (mean, contiguous)",
/// "trained in 40 steps on 20480 tokens, held-out loss 3.1000 to 2.9000".
std::string text_of_step(const Json& step);

/// The losses under kHeldOutKey: "source 3.0512, mean 10.5801, result 3.6540 nats per token on 8192
/// tokens", or for models that cannot predict the cosines to the source. Empty if none is recorded.
std::string text_of_held_out(const Json& held_out);

/// What distillation achieved, a fact under kDistilledKey: "divergence from the source 0.9000 ->
/// 0.3000 nats per token on held-out text". Empty if none is recorded.
std::string text_of_distilled(const Json& distilled);

}  // namespace regroup
