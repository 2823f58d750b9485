// The target of a conversion: container, architecture, config and spec.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "formats/base/printable.h"
#include "formats/families/loader_files.h"
#include "formats/model/model.h"
#include "formats/spec/model_spec.h"

namespace regroup {

/// The containers of results.
enum class Container {
  kSafetensors,  ///< a Hugging Face directory
  kTorch,        ///< the same with torch's files
  kGguf,         ///< one file, for llama.cpp
};

/// The container of `source`, or the closest one that can be written.
Container container_of(const Model& source);

/// Whether results are single files rather than directories.
bool is_single_file(Container container);

/// What a result has besides its tensors.
struct ResultFiles {
  /// Whether tensors keep names and layouts: all except those of attention are copied.
  bool in_place = true;
  std::string config_text = {};               ///< config.json; empty where it has none
  std::optional<GgufMetadata> gguf = {};      ///< of Container::kGguf
  std::vector<LoaderFile> loader_files = {};  ///< code, see choose_loader_code()
  std::vector<NamedText> files = {};          ///< see keep_origin()
  std::vector<std::string> left_out = {};     ///< companions of the source that are not copied
  std::vector<std::string> notes = {};        ///< for the user, about loading the result
};

/// Before heads and provenance are added to config and metadata.
struct Target : ResultFiles {
  ModelSpec spec;
};

/// The target that `asked` names, as ConversionRequest::target says, in that container and with the
/// heads of `grouped`. "expanded" stores each kv head `stored` / G times (none: once per query
/// head), in every role that is not stored that way already. In a GGUF file it is the graph of
/// llama.cpp that computes `grouped`. "same" is, for a model of another convention than Hugging
/// Face's, the architecture recorded in its file, else an equivalent one. Throws kUsage with the
/// reasons if there is none, or if `stored` is no multiple of a layer's heads or no divisor of the
/// query heads.
Target choose_target(const Model& source, const ModelSpec& grouped, Container container,
                     const std::string& asked, std::optional<std::int64_t> stored);

/// Whether the stock loaders of spec's architecture read its kv heads.
bool loaders_take_heads(const ModelSpec& spec);

/// Whether nothing is known of the loaders: of an architecture known through a layout file only, or
/// of a model with a language model inside.
bool loaders_are_unknown(const ModelSpec& spec);

// What a Hugging Face directory made from a model of another convention keeps of it: its tokenizer
// and special tokens in that form, and of a GGUF file all metadata, so that a GGUF file made from
// the directory has them again.

/// Adds the files of a directory that is made from `source`, and the special tokens of Meta's
/// tokenizer to its config. A note says why a tokenizer has no other form.
void keep_origin(Target& target, const Model& source);

}  // namespace regroup
