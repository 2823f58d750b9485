// The safetensors container: a length, a JSON header, then the tensors' bytes.
// https://github.com/huggingface/safetensors#format
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "formats/checkpoint/checkpoint.h"

namespace regroup {

/// Longest header a reader accepts, in bytes (the reference implementation's limit).
inline constexpr std::uint64_t kMaxSafetensorsHeader = 25'000'000;

/// Opens one file and validates its whole header: the tensors' ranges must tile the data section
/// exactly, each as long as its shape and dtype say. Throws kBadInput naming file and tensor.
Checkpoint::Part open_safetensors(File file);
Checkpoint::Part open_safetensors(const std::filesystem::path& path);

/// The tensors and metadata in `header` (the JSON text, from its brace on) of a file whose data
/// section is `data_bytes` long; the ranges in the result are relative to the data section and
/// sorted. `where` (a file name) opens every error message.
void parse_safetensors_header(std::string_view header, std::uint64_t data_bytes,
                              std::string_view where, std::vector<TensorInfo>& tensors,
                              std::map<std::string, std::string>& metadata);

/// The bytes before the data section: length and header, padded with spaces to 8 bytes, or so that
/// the data begins at byte `data_in_block` (a multiple of 8) of a block of kSharedBlock. The
/// tensors' `begin` and `end` are relative to the data section. Throws kUsage for a block type,
/// which the format does not have.
std::string encode_safetensors_header(std::span<const TensorInfo> tensors,
                                      const std::map<std::string, std::string>& metadata,
                                      std::optional<std::uint64_t> data_in_block = std::nullopt);

}  // namespace regroup
