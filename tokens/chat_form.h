// The form of a model's chats, recognised by its chat template.
#pragma once

#include <optional>

#include "formats/vocabulary/vocabulary.h"
#include "tokens/tokenizer.h"

namespace regroup {

/// The form of the chats that tokenizer.chat_template() writes, if it is a known one: ChatML, or
/// that of Llama 2 (and Mistral), Llama 3, Gemma, Phi-3 or Zephyr. Templates are programs, in
/// Jinja; none is run. They are known by their special tokens, which the tokenizer must have, too.
/// A literal default system prompt is part of the form. Nothing if there is no template or another.
std::optional<ChatForm> chat_form_of(const Tokenizer& tokenizer);

}  // namespace regroup
