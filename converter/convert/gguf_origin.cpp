#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "converter/convert/target.h"
#include "formats/base/error.h"
#include "formats/base/file.h"
#include "formats/base/printable.h"
#include "formats/tensors/checkpoint_writer.h"
#include "formats/tensors/gguf.h"
#include "formats/vocabulary/gguf_vocabulary.h"
#include "formats/vocabulary/tokenizer_files.h"

namespace regroup {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMaxTokenizerFile = 256U << 20;

// Keys that describe the weights as they are stored in one file, not the model.
constexpr std::array<std::string_view, 4> kOfTheFile{
    "general.architecture", kGgufAlignmentKey, "general.file_type", "general.quantization_version"};
constexpr std::array<std::string_view, 3> kNamespacesOfTheFile{"split.", "quantize.", "regroup."};

bool describes_file(std::string_view key) {
  return std::find(kOfTheFile.begin(), kOfTheFile.end(), key) != kOfTheFile.end() ||
         std::any_of(kNamespacesOfTheFile.begin(), kNamespacesOfTheFile.end(),
                     [&](std::string_view prefix) { return key.starts_with(prefix); });
}

bool is_tokenizer_key(std::string_view key) { return key.starts_with("tokenizer."); }

// The metadata without what describes the file, and without the architecture's own, which the
// config states.
GgufMetadata lasting(const GgufMetadata& metadata) {
  const std::string own = std::string(metadata.text("general.architecture").value_or("")) + ".";
  GgufMetadata kept;
  for (const GgufMetadata::Entry& entry : metadata.entries()) {
    if (!describes_file(entry.key) && !entry.key.starts_with(own)) {
      kept.set(entry);
    }
  }
  return kept;
}

std::optional<GgufMetadata> kept_metadata(const Model& source) {
  const auto& all = source.companions;
  if (std::find(all.begin(), all.end(), fs::path(kGgufMetadataFile)) == all.end()) {
    return std::nullopt;
  }
  return open_gguf(source.path / kGgufMetadataFile).metadata;
}

// Whether the directory's tokenizer is the one that was made from `metadata`.
bool has_tokenizer_of(const Model& source, const GgufMetadata& metadata, std::int64_t rows) {
  const auto tokens = metadata.array("tokenizer.ggml.tokens");
  if (!tokens || tokens->size() != static_cast<std::uint64_t>(rows)) {
    return false;
  }
  try {
    for (const NamedText& file : tokenizer_files_of(metadata)) {
      const fs::path path = source.path / file.name;
      if (!path_exists(path) || read_text(path, kMaxTokenizerFile) != file.text) {
        return false;
      }
    }
    return true;
  } catch (const Error&) {  // no tokenizer could be made from it
    return !tokenizer_file_in(source.path);
  }
}

}  // namespace

void keep_gguf_origin(Target& target, const Model& source) {
  GgufMetadata kept = lasting(*source.gguf);
  target.files.push_back({std::string(kGgufMetadataFile), encode_gguf(kept)});
  if (!has_tokenizer(*source.gguf)) {
    return;
  }
  try {
    for (NamedText& file : tokenizer_files_of(*source.gguf)) {
      target.files.push_back(std::move(file));
    }
    const Vocabulary vocabulary = vocabulary_in(*source.gguf);
    if (vocabulary.model == "gpt2" && (vocabulary.pre.empty() || vocabulary.pre == "default")) {
      target.notes.emplace_back(
          "tokenizer.ggml.pre names no split: tokenizer.json splits text as llama.cpp does without "
          "one; if the original model's splits otherwise, copy that");
    }
  } catch (const Error& fault) {
    target.notes.push_back(
        fmt::format("no tokenizer is written: {}. Copy tokenizer.json (or tokenizer.model) and "
                    "tokenizer_config.json of the original model into the result",
                    fault.what()));
  }
}

void restore_gguf_origin(Target& target, const Model& source) {
  const std::optional<GgufMetadata> kept = kept_metadata(source);
  const bool same_tokenizer = kept && has_tokenizer_of(source, *kept, target.spec.vocab_size);
  if (!same_tokenizer) {
    const Vocabulary vocabulary = read_vocabulary(source.path, target.spec.vocab_size);
    set_vocabulary(*target.gguf, vocabulary);
    target.notes.insert(target.notes.end(), vocabulary.notes.begin(), vocabulary.notes.end());
    if (kept && has_tokenizer(*kept)) {
      target.notes.push_back(
          fmt::format("the tokenizer is that of the directory's own files: they are no longer what "
                      "was made from {}",
                      kGgufMetadataFile));
    }
  }
  for (std::size_t i = 0; kept && i < kept->entries().size(); ++i) {
    const GgufMetadata::Entry& entry = kept->entries()[i];
    if (!describes_file(entry.key) && (same_tokenizer || !is_tokenizer_key(entry.key))) {
      target.gguf->set(entry);
    }
  }
}

}  // namespace regroup
