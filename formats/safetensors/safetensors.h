// The safetensors container: header length, JSON header, tensor data.
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

/// The largest header accepted, in bytes (the reference implementation's limit).
inline constexpr std::uint64_t kMaxSafetensorsHeader = 25'000'000;

/// Opens one file and validates its whole header: tensor ranges must cover the data section
/// exactly, without overlap, and match shape and dtype. Throws kBadInput naming file and tensor.
Checkpoint::Part open_safetensors(File file);
Checkpoint::Part open_safetensors(const std::filesystem::path& path);

/// Parses `header` (the JSON text, starting at its brace) of a file with `data_bytes` bytes of
/// tensor data. Ranges in the result are sorted and relative to the data section. Error messages
/// begin with `where` (a file name).
void parse_safetensors_header(std::string_view header, std::uint64_t data_bytes,
                              std::string_view where, std::vector<TensorInfo>& tensors,
                              std::map<std::string, std::string>& metadata);

/// Encodes the bytes before the data section: length and header, padded with spaces to 8 bytes, or
/// so that the data begins `data_in_block` bytes (a multiple of 8) after a multiple of
/// kSharedBlock. The tensors' `begin` and `end` are relative to the data section. Throws kUsage for
/// block types, which the format does not support.
std::string encode_safetensors_header(std::span<const TensorInfo> tensors,
                                      const std::map<std::string, std::string>& metadata,
                                      std::optional<std::uint64_t> data_in_block = std::nullopt);

}  // namespace regroup
