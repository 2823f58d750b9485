// Opening a model, and its fingerprint.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "formats/model/conversion_record.h"
#include "formats/model/model_directory.h"
#include "formats/spec/model_spec.h"
#include "formats/tensors/checkpoint.h"
#include "formats/tensors/gguf_metadata.h"

namespace regroup {

/// A checksum of all tensors' names, dtypes and shapes, samples of their contents, and `text` (such
/// as the config). Reads a few kilobytes of each tensor.
std::string fingerprint_of(const Checkpoint& checkpoint, const std::string& text);

/// Whose format the model's config and tensor names follow.
enum class Convention {
  kHuggingFace,  ///< config.json and a family's own names
  kGguf,         ///< one file, or its parts: llama.cpp's hyper-parameters and tensor names
  kMeta,         ///< params.json and consolidated weights
};

/// With kMeta, the config is params.json. With kGguf, `path` is the (first) file itself and
/// there are no config and no companions.
struct Model : ModelDirectory {
  Convention convention = Convention::kHuggingFace;
  ModelSpec spec;
  std::optional<GgufMetadata> gguf;  ///< with Convention::kGguf
  /// If the files lack the output head that the config requires (base models): the head's first
  /// tensor. `spec` then has no head and the model cannot predict. Otherwise empty.
  std::string missing_head = {};
};

struct OpenOptions {
  std::filesystem::path layout;  ///< a layout file for unsupported architectures; empty: none
};

/// A checksum of the config, all tensors' names, dtypes and shapes, and samples of their contents.
/// Distinguishes checkpoints without reading them whole.
std::string fingerprint_of(const Model& source);

/// The record in its config, else in the metadata of files without a config; empty if there is
/// none.
ConversionRecord record_of(const Model& model);

/// Opens a model of any convention. Reads headers only. `path` may be a name in the local hub cache
/// (formats/base/hub_cache.h). Throws kBadInput if it is not a valid model.
Model open_model(const std::filesystem::path& path, const OpenOptions& options = {});

/// The same, but also accepts a config.json alone, or a directory with only that. The tensors are
/// then those that the config requires, in its dtype, without a file: they can be inspected but not
/// read.
Model open_model_outline(const std::filesystem::path& path, const OpenOptions& options = {});

/// Throws kUsage, naming the command that helps, for all conventions except kHuggingFace.
void check_writable(const Model& model);

/// The spec of the weights that open_checkpoint() opened at `path`, for conventions without
/// config.json: all except kHuggingFace. Nothing for kHuggingFace and for GGUF files with unknown
/// graphs.
std::optional<ModelSpec> describe_without_config(const std::filesystem::path& path,
                                                 const Checkpoint& checkpoint);

}  // namespace regroup
