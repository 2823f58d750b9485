#include "cli/measure/text_tokens.h"

#include <algorithm>
#include <thread>

#include "cli/measure/data_origin.h"
#include "cli/process/interrupt.h"
#include "formats/base/error.h"
#include "formats/base/printable.h"
#include "tokens/tokenize.h"

namespace regroup {
namespace {

namespace fs = std::filesystem;

// Of a model in the Hugging Face cache the path is that of its files.
std::unique_ptr<Tokenizer> open_tokenizer_of(const Model& source, const TextInput& text) {
  return open_tokenizer(text.tokenizer.empty() ? source.path.string() : text.tokenizer,
                        interrupt_requested());
}

}  // namespace

std::int64_t tokens_to_read(std::int64_t used) { return 16 * used + 1; }

void write_tokens(const Model& source, const TextInput& text, int threads,
                  std::optional<std::int64_t> wanted, const fs::path& output) {
  const std::unique_ptr<Tokenizer> tokenizer = open_tokenizer_of(source, text);
  if (vocabulary_of(*tokenizer) > source.spec.vocab_size) {
    throw_usage(
        "--text: the tokenizer has {} tokens, the model {}; name the model's with "
        "--tokenizer",
        vocabulary_of(*tokenizer), source.spec.vocab_size);
  }
  TokenizeSettings settings;
  settings.origin = origin_of(*tokenizer);
  if (!text.tokenizer.empty()) {
    check_origin(source, *settings.origin, "--text: the tokens");
  }
  settings.inputs = text.files;
  settings.text.json_lines = text.json_lines;
  settings.text.field = text.field.empty() ? settings.text.field : text.field;
  settings.output = output;
  settings.layout = TokenLayout::kMegatron;
  settings.max_tokens = wanted;
  settings.threads =
      threads > 0 ? threads : static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  tokenize(*tokenizer, settings, {}, interrupt_requested());
}

TokenInput::TokenInput(const std::string& data, const TextInput& text, const Model& source,
                       int threads, std::optional<std::int64_t> wanted)
    : path_(data) {
  check_one_input(!data.empty(), text);
  if (data.empty()) {
    made_ = std::make_unique<StagedDirectory>(fs::temp_directory_path() / "regroup-tokens");
    path_ = made_->path() / "text.bin";
    write_tokens(source, text, threads, wanted, path_);
  }
}

}  // namespace regroup
