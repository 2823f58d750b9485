// The files of a model's directory.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "formats/base/json.h"
#include "formats/tensors/checkpoint.h"

namespace regroup {

/// Opens one weight file in any supported container, which its first bytes tell: safetensors, both
/// torch formats, GGUF. Throws kBadInput for other files and for any error in a header.
Checkpoint::Part open_weight_file(const std::filesystem::path& path);

// A model in Hugging Face's layout: config.json, weights in one file or in indexed shards, and
// companion files such as the tokenizer.

/// The largest config file accepted, in bytes.
inline constexpr std::uint64_t kMaxConfigBytes = 4U << 20;

struct ModelDirectory {
  std::filesystem::path path;  ///< the directory
  std::string config_text;     ///< config.json, byte for byte; open_model() leaves out some members
  Json config;                 ///< the same, parsed
  Checkpoint checkpoint;
  /// Other files to copy with the model, relative to `path`. Links that point outside are excluded.
  std::vector<std::filesystem::path> companions;
};

/// Opens a directory with config.json and weights (safetensors, else torch files), or one weight
/// file or index in such a directory. Reads headers only. Throws kBadInput if there is no such
/// model, a shard is missing, or index and shards disagree.
ModelDirectory open_model_directory(const std::filesystem::path& path);

/// The same for a directory in Meta's convention, with params.json as the config.
ModelDirectory open_meta_directory(const std::filesystem::path& path);

/// The companions of `directory`; with `outside`, its links out of it instead.
std::vector<std::filesystem::path> companions_of(const std::filesystem::path& directory,
                                                 bool outside = false);

/// Copies the companions, except those named in `left_out`, into `destination`, an existing
/// directory.
void copy_companions(const ModelDirectory& source, const std::filesystem::path& destination,
                     const std::vector<std::string>& left_out = {});

/// Sentences on the files that are not copied: links to outside the directory, whose targets may
/// not be meant for publication, links to nothing, and weights in other forms.
std::vector<std::string> notes_on_companions(const ModelDirectory& source);

/// A sentence, to warn with, if the model's only tokenizer is behind such a link; empty otherwise.
std::string text_of_left_tokenizer(const ModelDirectory& source);

/// Throws kUsage if `destination` is the source's directory or inside it.
void refuse_output_inside(const ModelDirectory& source, const std::filesystem::path& destination);

/// The weight file or index in a directory, in names of safetensors or torch: the one that loaders
/// prefer if there are several.
std::optional<std::filesystem::path> weights_file_in(const std::filesystem::path& directory);

/// The path of what is opened for `path`, which may be a name in the local hub cache
/// (formats/base/hub_cache.h): for a directory without weights in another format, its GGUF model's
/// only or first file. Throws kBadInput if it has several such models.
std::filesystem::path resolve_weights_path(const std::filesystem::path& path);

/// Opens the weights of a directory (Meta's convention included), an index, or a single file. No
/// config.json is needed. `path` may be a name in the local hub cache (formats/base/hub_cache.h).
Checkpoint open_checkpoint(const std::filesystem::path& path);

/// The index that open_checkpoint() uses for `path`, if any.
std::optional<std::filesystem::path> index_of_checkpoint(const std::filesystem::path& path);

/// The model's directory; `path` may also name a weight file or index inside it.
std::filesystem::path directory_of_model(const std::filesystem::path& path);

// Weights in Meta's layout: params.json with consolidated.NN.pth, one per tensor-parallel rank, or
// with a single consolidated.safetensors.

inline constexpr std::string_view kMetaParamsFile = "params.json";

/// Whether the directory has params.json and weights with Meta's file names, and no config.json.
bool is_meta_directory(const std::filesystem::path& directory);

/// Opens all weight files of such a directory as one checkpoint. Throws kBadInput if a rank is
/// missing or tensors cannot be joined.
Checkpoint open_meta_checkpoint(const std::filesystem::path& directory);

}  // namespace regroup
