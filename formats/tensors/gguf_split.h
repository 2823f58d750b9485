// A model in GGUF files: one, or several parts as llama.cpp's gguf-split makes them.
// https://github.com/ggml-org/llama.cpp/tree/master/tools/gguf-split
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/tensors/gguf.h"

namespace regroup {

/// The most parts accepted. Published models have up to 100; each part is an open file.
inline constexpr std::int64_t kMaxGgufParts = 512;

struct GgufModelFiles {
  GgufMetadata metadata;  ///< the first part's, without the "split.*" keys
  std::vector<Checkpoint::Part> parts;
};

/// A file name "PREFIX-00001-of-00003.gguf".
struct GgufPartName {
  std::string prefix;
  std::int64_t number = 1;  ///< from 1
  std::int64_t count = 1;

  std::string text() const;
};

/// Nothing for other names, and for a number that is 0 or above the count.
std::optional<GgufPartName> parse_gguf_part_name(std::string_view name);

/// Opens the model whose only or first file is `file`, with all its parts. Throws kBadInput if
/// `file` is another part, or its name or its keys do not say the same; if a part is missing, has
/// another place than its name says, or is of another model.
GgufModelFiles open_gguf_files(const std::filesystem::path& file);

/// The metadata of that model. Only `file` is read. Throws like open_gguf_files().
GgufMetadata gguf_metadata_of(const std::filesystem::path& file);

/// Joins the parts, which are in the order of their names. Throws kBadInput if their keys disagree.
GgufModelFiles join_gguf_parts(std::vector<GgufFile> parts);

/// The only or first file of the one model that the directory's "*.gguf" files are; nothing if it
/// has no such file. Throws kBadInput if they are several models.
std::optional<std::filesystem::path> gguf_model_in(const std::filesystem::path& directory);

}  // namespace regroup
