#include "cli/measure/sampled_text.h"

#include <memory>
#include <utility>

#include "cli/measure/data_origin.h"
#include "cli/shell/progress.h"
#include "cli/shell/standard_streams.h"
#include "formats/base/error.h"
#include "formats/vocabulary/token_writer.h"
#include "tokens/chat_form.h"

namespace regroup {

std::optional<ChatSettings> chats_of(const Model& source, const TextInput& text,
                                     const Console& console) {
  try {
    const std::unique_ptr<Tokenizer> tokenizer = open_tokenizer_of(source, text);
    if (auto form = chat_form_of(*tokenizer)) {
      return ChatSettings{.form = std::move(*form)};
    }
    if (!tokenizer->chat_template().empty()) {
      console.note(
          "note: the model's chat template is of no known form: it writes texts "
          "that begin with a random token instead");
    }
  } catch (const Error& fault) {
    if (fault.kind() == ErrorKind::kInterrupted) {
      throw;
    }
  }
  return std::nullopt;
}

void write_samples(const Model& source, const SampleSettings& settings,
                   const std::filesystem::path& output, const Console& console) {
  TokenWriter writer(output, TokenLayout::kMegatron, source.spec.vocab_size);
  if (const auto origin = origin_of(source)) {
    writer.set_origin(*origin);
  }
  Progress progress(console, "sample", static_cast<std::uint64_t>(settings.tokens), "tokens");
  sample(
      source, settings,
      [&](std::span<const std::uint32_t> tokens) {
        writer.write(tokens);
        writer.end_document();
      },
      [&](std::int64_t done) { progress.update(static_cast<std::uint64_t>(done)); },
      interrupt_requested());
  progress.finish();
  writer.publish();
}

}  // namespace regroup
