#include "cli/measure/made_tokens.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "cli/shell/progress.h"
#include "cli/shell/standard_streams.h"
#include "formats/base/checksum.h"
#include "formats/base/error.h"
#include "formats/base/file.h"
#include "formats/base/printable.h"
#include "formats/vocabulary/token_writer.h"
#include "tokens/tokenizer.h"
#include "uptrain/train/run_directory.h"

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
  Progress progress(console, "sample", settings.tokens, "tokens");
  sample(
      source, settings,
      [&](std::span<const std::uint32_t> tokens) {
        writer.write(tokens);
        writer.end_document();
      },
      progress.callback(), interrupt_requested());
  progress.finish();
  writer.publish();
}

namespace fs = std::filesystem;

std::string digest_of_file(const fs::path& path) {
  std::error_code fault;
  if (fs::exists(path, fault) && !fs::is_regular_file(path, fault)) {
    return "";
  }
  constexpr std::uint64_t kChunk = 1U << 20;
  const File file = File::open(path);
  std::vector<std::byte> chunk;
  std::string digests;
  for (std::uint64_t at = 0; at < file.size(); at += kChunk) {
    check_stop();
    chunk.resize(std::min(kChunk, file.size() - at));
    file.read_at(at, chunk);
    digests = checksum_of(digests + checksum_of(chunk));
  }
  return digests;
}

namespace {

constexpr const char* kDigestName = "text.digest";

// What decides the tokens of a text, apart from the tokenizer: its bytes, and how they are read.
std::string digest_of(const TextInput& text) {
  std::string digests =
      fmt::format("{} {}", text.json_lines ? int{*text.json_lines} : -1, text.field);
  for (const std::string& file : text.files) {
    digests += " " + digest_of_file(file);
  }
  return checksum_of(digests);
}

// Runs of earlier versions have no digest.
void check_same_text(const TextInput& text, const fs::path& run) {
  const fs::path recorded = run / kDigestName;
  if (path_exists(recorded) && read_text(recorded, 64) != digest_of(text)) {
    throw_usage(
        "--text: {} was begun with another text, or with other --jsonl or --field; resume it "
        "with the same",
        printable_path(run));
  }
}

}  // namespace

TrainingText::TrainingText(const TextInput& text, const Model& source, int threads,
                           const fs::path& output, bool resume)
    : kept_(RunDirectory::path_for(output) / "text.bin") {
  if (resume) {
    path_ = kept_;
    if (!path_exists(kept_)) {
      throw_usage("{}: was begun with --data; resume it with the same token files",
                  printable(RunDirectory::path_for(output).string(), 0));
    }
    check_same_text(text, RunDirectory::path_for(output));
    return;
  }
  fs::path beside = RunDirectory::path_for(output);
  beside += ".text";
  made_ = std::make_unique<StagedDirectory>(beside);
  path_ = made_->path() / kept_.filename();
  write_tokens(source, text, threads, std::nullopt, path_);
  write_text(made_->path() / kDigestName, digest_of(text));
}

void TrainingText::keep() {
  if (!made_) {
    return;
  }
  std::error_code fault;
  for (const char* extension : {".bin", ".idx", ".digest"}) {
    fs::path from = path_, to = kept_;
    fs::rename(from.replace_extension(extension), to.replace_extension(extension), fault);
    if (fault) {
      throw_environment("{}: cannot be made: {}", printable_path(to), fault.message());
    }
  }
  made_.reset();
}

}  // namespace regroup
