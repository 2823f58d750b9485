// Reading GGUF: a file, and the model in one or several.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/base/file.h"
#include "formats/tensors/checkpoint.h"
#include "formats/tensors/gguf_metadata.h"

namespace regroup {

// The GGUF container, versions 2 and 3: metadata, tensor descriptions, tensor data.
// https://github.com/ggml-org/ggml/blob/master/docs/gguf.md

inline constexpr std::string_view kGgufMagic = "GGUF";
inline constexpr std::uint32_t kGgufVersion = 3;
inline constexpr std::string_view kGgufAlignmentKey = "general.alignment";

/// Limits of ggml's reader, and the largest header accepted here, in bytes.
inline constexpr std::size_t kMaxGgufTensorName = 63;
inline constexpr std::uint32_t kMaxGgufDimensions = 4;
inline constexpr std::uint64_t kMaxGgufHeader = 64U << 20;  // known vocabularies take up to 20 MiB
/// Limits such that headers are read in a tenth of a second. Published files have up to 3,000
/// tensors and 100 keys.
inline constexpr std::uint64_t kMaxGgufTensors = 30'000;
inline constexpr std::uint64_t kMaxGgufKeys = 10'000;

struct GgufFile {
  GgufMetadata metadata;
  /// Tensors are in file order. Shapes are in torch's order, the reverse of the file's. Metadata
  /// are the "regroup.*" keys with string values.
  Checkpoint::Part part;
};

/// Opens one file and validates everything before the tensor data. Tensors must be contiguous, each
/// padded to the alignment, and inside the file. Throws kBadInput.
GgufFile open_gguf(const std::filesystem::path& path);

/// Whether `path` is a regular file that begins with "GGUF".
bool is_gguf_file(const std::filesystem::path& path);

/// ggml's number of a type; nothing for types without a counterpart.
std::optional<std::uint32_t> ggml_type_of(DType dtype);

/// The alignment of tensor data in bytes. Throws kBadInput unless it is a u32 power of two.
std::uint64_t gguf_alignment(const GgufMetadata& metadata);

/// `offset` rounded up to a multiple of `alignment`; nothing on overflow.
std::optional<std::uint64_t> padded_to(std::uint64_t offset, std::uint64_t alignment);

// A model in GGUF files: one, or several parts as llama.cpp's gguf-split makes them.
// https://github.com/ggml-org/llama.cpp/tree/master/tools/gguf-split

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
