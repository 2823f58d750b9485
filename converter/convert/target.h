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
  std::vector<NamedText> files = {};          ///< made from a GGUF file, see keep_gguf_origin()
  std::vector<std::string> left_out = {};     ///< companions of the source that are not copied
  std::vector<std::string> notes = {};        ///< for the user, about loading the result
};

/// Before heads and provenance are added to config and metadata.
struct Target : ResultFiles {
  ModelSpec spec;
};

/// The source's own architecture with the heads of `grouped`.
Target same_target(const Model& source, const ModelSpec& grouped);

/// The same with each kv head stored `stored` / G times, in every role of `grouped` that is not
/// stored that way already. Throws kUsage if a layer's heads do not divide `stored`, or if `stored`
/// does not divide the query heads.
Target expanded_target(const Model& source, const ModelSpec& grouped, std::int64_t stored);

/// An architecture, by name or model_type, that computes exactly what `grouped` describes. Throws
/// kUsage listing the differences.
Target named_target(const Model& source, const ModelSpec& grouped, const std::string& name);

/// The source's own architecture if its stock loaders support these heads, else the first
/// equivalent one whose loaders do. Throws kUsage with the reasons if there is none.
Target automatic_target(const Model& source, const ModelSpec& grouped);

/// The graph of llama.cpp that computes `grouped`: a GGUF file's own, or one for another source.
/// Throws kUsage naming the differences if none does.
Target gguf_target(const Model& source, const ModelSpec& grouped);

/// A Hugging Face architecture for a model of another convention: the one recorded in a GGUF file,
/// else an equivalent one. Throws kUsage if there is none.
Target hugging_face_target(const Model& source, const ModelSpec& grouped);

/// Whether the stock loaders of spec's architecture read its kv heads.
bool loaders_take_heads(const ModelSpec& spec);

/// Whether nothing is known of the loaders: of an architecture known through a layout file only, or
/// of a model with a language model inside.
bool loaders_are_unknown(const ModelSpec& spec);

// What a directory made from a GGUF file keeps of it: its tokenizer in Hugging Face's form, and all
// of its metadata, so that a GGUF file made from the directory has them again.

/// Adds the files of a directory that is made from `source`, a GGUF file. If the file's tokenizer
/// has no other form, a note says why, and only the metadata are added.
void keep_gguf_origin(Target& target, const Model& source);

}  // namespace regroup
