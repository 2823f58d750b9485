// What a conversion writes: container, architecture, config and spec.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/model/model.h"
#include "formats/spec/model_spec.h"

namespace regroup {

/// The containers results are written in.
enum class Container {
  kSafetensors,  ///< a Hugging Face directory
  kTorch,        ///< the same with torch's files
  kGguf,         ///< one file, for llama.cpp
  kLlama2c,      ///< one file, for run.c
};

/// The container of `source` itself, or the one that reads closest to it.
Container container_of(const Model& source);

/// Whether results are single files rather than directories.
bool is_single_file(Container container);

struct Target {
  ModelSpec spec;
  std::string config_text;  ///< of Hugging Face's architecture, before provenance is added
  std::vector<std::string> notes;
  std::optional<GgufMetadata> gguf;  ///< of Container::kGguf, before provenance is added
  /// Whether tensors keep names and places: all but those of attention are copied.
  bool in_place = true;
};

/// The source's own architecture with the heads of `grouped`.
Target same_target(const Model& source, const ModelSpec& grouped);

/// The same with each kv head stored `stored` / G times; every role of `grouped` that is not stored
/// as such already. Throws kUsage where a layer's heads do not divide `stored`, or where `stored`
/// does not divide the query heads.
Target expanded_target(const Model& source, const ModelSpec& grouped, std::int64_t stored);

/// An architecture, by name or model_type, that computes exactly what `grouped` describes. Throws
/// kUsage listing what stands in the way.
Target named_target(const Model& source, const ModelSpec& grouped, const std::string& name);

/// The source's own architecture where its stock loaders take these heads, else the first other one
/// that computes the same and whose loaders do. Throws kUsage listing why there is none.
Target automatic_target(const Model& source, const ModelSpec& grouped);

/// The graph of llama.cpp that computes `grouped`: a GGUF file's own, or one for another source.
/// Throws kUsage naming what stands in the way where none does.
Target gguf_target(const Model& source, const ModelSpec& grouped);

/// llama2.c's only architecture. Throws kUsage listing what stands in the way.
Target llama2c_target(const Model& source, const ModelSpec& grouped);

/// A Hugging Face architecture for a model of another convention: the one recorded when a GGUF file
/// was made of it, else one that computes the same. Throws kUsage where there is none.
Target hugging_face_target(const Model& source, const ModelSpec& grouped);

/// Whether the stock loaders of spec's architecture read its kv heads.
bool loaders_take_heads(const ModelSpec& spec);

}  // namespace regroup
