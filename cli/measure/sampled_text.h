// Text that a model writes itself, as a token file.
#pragma once

#include <filesystem>
#include <optional>

#include "cli/shell/console.h"
#include "cli/shell/text_input.h"
#include "formats/model/model.h"
#include "uptrain/run/sample.h"

namespace regroup {

/// How the source writes chats, if its tokenizer's chat template is of a known form; says so in a
/// note if it is not. None for a source without a template or tokenizer.
std::optional<ChatSettings> chats_of(const Model& source, const TextInput& text,
                                     const Console& console);

/// Writes the sequences of sample() to `output`, a new .bin with an .idx, each as a document, and
/// shows the progress. Throws what sample() throws.
void write_samples(const Model& source, const SampleSettings& settings,
                   const std::filesystem::path& output, const Console& console);

}  // namespace regroup
