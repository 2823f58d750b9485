// The GGUF container, versions 2 and 3: metadata, tensor descriptions, then the tensors' bytes.
// https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string_view>

#include "formats/checkpoint/checkpoint.h"
#include "formats/gguf/gguf_metadata.h"

namespace regroup {

inline constexpr std::string_view kGgufMagic = "GGUF";
inline constexpr std::uint32_t kGgufVersion = 3;
inline constexpr std::uint64_t kGgufDefaultAlignment = 32;
inline constexpr std::string_view kGgufAlignmentKey = "general.alignment";

/// Limits of ggml's reader, and the most bytes of header this one takes.
inline constexpr std::size_t kMaxGgufTensorName = 63;
inline constexpr std::uint32_t kMaxGgufDimensions = 4;
inline constexpr std::uint64_t kMaxGgufHeader = 64U << 20;  // vocabularies: those known take 20
/// As many as are read in a tenth of a second; published files have up to 3,000, and 100 keys.
inline constexpr std::uint64_t kMaxGgufTensors = 30'000;
inline constexpr std::uint64_t kMaxGgufKeys = 10'000;

struct GgufFile {
  GgufMetadata metadata;
  /// Shapes are in torch's order, the reverse of the file's. Its metadata are the keys "regroup.*"
  /// whose values are strings.
  Checkpoint::Part part;
};

/// Opens one file and validates all that stands before the tensors' bytes; each tensor must begin
/// where the padded sizes of those before it end, inside the file. Throws kBadInput.
GgufFile open_gguf(const std::filesystem::path& path);

/// Whether it is a regular file that begins with "GGUF".
bool is_gguf_file(const std::filesystem::path& path);

/// The dtype of ggml's number for it, and the other way round; nothing where there is none.
std::optional<DType> dtype_from_ggml(std::uint32_t type);
std::optional<std::uint32_t> ggml_type_of(DType dtype);

/// The alignment of the tensors in bytes. Throws kBadInput where it is no u32 power of two.
std::uint64_t gguf_alignment(const GgufMetadata& metadata);

/// `offset`, raised to a multiple of `alignment`; nothing when that overflows.
std::optional<std::uint64_t> padded_to(std::uint64_t offset, std::uint64_t alignment);

}  // namespace regroup
