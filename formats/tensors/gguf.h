// Reading GGUF: the header, and the checkpoint.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string_view>

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

}  // namespace regroup
