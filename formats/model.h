// A model opened for use: its files, and what they are in the one vocabulary.
#pragma once

#include <filesystem>
#include <optional>

#include "formats/gguf_metadata.h"
#include "formats/model_directory.h"
#include "formats/model_spec.h"

namespace regroup {

/// Who spells the model's facts and tensor names.
enum class Convention {
  kHuggingFace,  ///< config.json and a family's own names
  kGguf,         ///< one file: llama.cpp's hyper-parameters and tensor names
};

/// Of a GGUF model `path` is the file itself; it has no config and no companions.
struct Model : ModelDirectory {
  Convention convention = Convention::kHuggingFace;
  ModelSpec spec;
  std::optional<GgufMetadata> gguf;  ///< with Convention::kGguf
};

/// Opens a model of any convention, headers only. Throws kBadInput for what cannot be understood.
Model open_model(const std::filesystem::path& path);

}  // namespace regroup
