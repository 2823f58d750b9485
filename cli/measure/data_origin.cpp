#include "cli/measure/data_origin.h"

#include <algorithm>
#include <thread>

#include <fmt/format.h>

#include "cli/shell/option_needs.h"
#include "cli/shell/standard_streams.h"
#include "formats/base/error.h"
#include "formats/base/file.h"
#include "formats/base/printable.h"
#include "formats/model/model_directory.h"
#include "formats/model/serving_cost.h"
#include "formats/tensors/gguf.h"
#include "formats/vocabulary/token_file.h"
#include "formats/vocabulary/tokenizer_files.h"
#include "formats/vocabulary/vocabulary.h"

namespace regroup {
namespace {

namespace fs = std::filesystem;

bool has_own_tokenizer(const Model& model) {
  if (tokenizer_file_in(model.path)) {
    return true;
  }
  const fs::path weights = resolve_weights_path(model.path);
  return is_gguf_file(weights) && has_tokenizer(gguf_metadata_of(weights));
}

TokenOrigin own_origin(const Model& model) {
  return origin_of(*open_tokenizer(model.path.string(), interrupt_requested()));
}

// Throws kUsage if `origin` is another tokenizer than the model's; `what` names the tokens. Returns
// a warning if a few tokens differ or the model's tokenizer cannot be read; empty for none, and for
// a model without a tokenizer.
std::string check_origin(const Model& model, const TokenOrigin& origin, const std::string& what) {
  if (!has_own_tokenizer(model)) {
    return "";
  }
  TokenOrigin own;
  try {
    own = own_origin(model);
  } catch (const Error& fault) {
    if (fault.kind() == ErrorKind::kInterrupted) {
      throw;
    }
    return fmt::format("{} cannot be compared with the model's tokenizer: {}", what, fault.what());
  }
  const std::size_t equal = own.digest.equal_parts(origin.digest);
  if (2 * equal < TokenizerDigest::kParts) {
    throw_usage(
        "{} are of the tokenizer {}, the model's is {}, with other ids: tokenize the text with the "
        "model's",
        what, printable(origin.tokenizer, 0), printable(own.tokenizer, 0));
  }
  return equal == TokenizerDigest::kParts
             ? ""
             : fmt::format(
                   "{} are of the tokenizer {}, in which some tokens differ from the model's, {}",
                   what, printable(origin.tokenizer, 0), printable(own.tokenizer, 0));
}

}  // namespace

void warn_of_context(const Model& model, std::int64_t context, const Console& console) {
  console.notes("warning", {warning_of_context(model, context)});
}

TokenOrigin origin_of(const Tokenizer& tokenizer) {
  TokenOrigin origin{tokenizer.file().empty() ? "bytes" : tokenizer.file().string(), {}};
  tokenizer.for_each_token(
      [&](std::int64_t id, std::string_view text) { origin.digest.add(id, text); });
  return origin;
}

std::optional<TokenOrigin> origin_of(const Model& model) {
  try {
    return has_own_tokenizer(model) ? std::optional(own_origin(model)) : std::nullopt;
  } catch (const Error& fault) {
    if (fault.kind() == ErrorKind::kInterrupted) {
      throw;
    }
    return std::nullopt;
  }
}

void check_data_origin(const Model& model, const fs::path& data, const Console& console) {
  if (data.empty()) {
    return;
  }
  const std::string what = fmt::format("the tokens of {}", printable_path(data));
  if (const auto origin = origin_of_tokens(data)) {
    console.notes("warning", {check_origin(model, *origin, what)});
  } else if (has_own_tokenizer(model)) {
    if (!index_beside(data)) {
      TokenFile::open(data);  // throws for text, which has no ids to warn of
    }
    console.note(fmt::format(
        "warning: {} may be of another tokenizer than the model's, which makes every result "
        "meaningless: the file does not say; regroup tokenize makes files that do",
        what));
  }
}

void check_tokenizer(const Model& model, const Tokenizer& tokenizer, const Console& console) {
  console.notes("warning", {check_origin(model, origin_of(tokenizer), "the tokens of the prompt")});
}

std::unique_ptr<Tokenizer> open_tokenizer_of(const Model& source, const TextInput& text) {
  return open_tokenizer(text.tokenizer.empty() ? source.path.string() : text.tokenizer,
                        interrupt_requested());
}

std::int64_t tokens_to_read(std::int64_t used) { return 16 * used + 1; }

void set_field(TokenizeSettings& settings, const std::string& field) {
  if (field.empty()) {
    return;
  }
  if (std::ranges::all_of(settings.inputs, [&](const std::string& input) {
        return is_json(input, settings.text) == false;
      })) {
    refuse_without_effect("--field", "no input is JSON; --jsonl declares that they are");
  }
  settings.text.field = field;
}

void write_tokens(const Model& source, const TextInput& text, int threads,
                  std::optional<std::int64_t> wanted, const fs::path& output) {
  const std::unique_ptr<Tokenizer> tokenizer = open_tokenizer_of(source, text);
  tokenizer->set_rows(source.spec.vocab_size);
  TokenizeSettings settings;
  settings.origin = origin_of(*tokenizer);
  if (!text.tokenizer.empty()) {
    check_origin(source, *settings.origin, "--text: the tokens");
  }
  settings.inputs = text.files;
  settings.text.json_lines = text.json_lines;
  set_field(settings, text.field);
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
    name_ = printable(text.files.front(), 0);
    write_tokens(source, text, threads, wanted, path_);
  }
}

}  // namespace regroup
