// A model opened for use: its files, and what they are in the one vocabulary.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "formats/directory/model_directory.h"
#include "formats/gguf/gguf_metadata.h"
#include "formats/spec/model_spec.h"

namespace regroup {

/// Who spells the model's facts and tensor names.
enum class Convention {
  kHuggingFace,  ///< config.json and a family's own names
  kGguf,         ///< one file: llama.cpp's hyper-parameters and tensor names
  kMeta,         ///< params.json and consolidated weights
  kLlama2c,      ///< one file that run.c reads
};

/// Of kMeta the config is params.json. Of kGguf and kLlama2c `path` is the file itself; it has no
/// config and no companions.
struct Model : ModelDirectory {
  Convention convention = Convention::kHuggingFace;
  ModelSpec spec;
  std::optional<GgufMetadata> gguf;  ///< with Convention::kGguf
  /// Where the files lack the head that the config calls for (a base model's): its first tensor.
  /// `spec` names none then, and nothing can be predicted. Empty elsewhere.
  std::string missing_head = {};
};

struct OpenOptions {
  std::filesystem::path layout;  ///< a layout file for what no family describes; empty: none
};

/// A checksum of the config, of all tensors' names, dtypes and shapes, and of samples of their
/// contents: enough to tell one checkpoint from another without reading all of it.
std::string fingerprint_of(const Model& source);

/// Opens a model of any convention, headers only; `path` may be a name in the local hub cache
/// (formats/base/hub_cache.h). Throws kBadInput for what cannot be understood.
Model open_model(const std::filesystem::path& path, const OpenOptions& options = {});

/// The same, and a config.json alone (or a directory with nothing but that): then the tensors are
/// those that the config calls for, in its dtype, and lie in no file. To be looked at, not read.
Model open_model_outline(const std::filesystem::path& path, const OpenOptions& options = {});

/// Throws kUsage, naming the command that helps, for all conventions but kHuggingFace.
void check_writable(const Model& model);

/// The spec of the weights that open_checkpoint() opened at `path`, where no config.json has a say:
/// all conventions but kHuggingFace. Nothing for others, and for GGUF files of unknown graphs.
std::optional<ModelSpec> describe_without_config(const std::filesystem::path& path,
                                                 const Checkpoint& checkpoint);

}  // namespace regroup
