// Reading safetensors: the header, parsed as an attacker may have written it, and the checkpoint.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/base/file.h"
#include "formats/tensors/checkpoint.h"

namespace regroup {

/// The most tensors in a safetensors file, and the most keys in its __metadata__: as many as can be
/// read in a tenth of a second. Published files have a few thousand tensors and about ten keys.
inline constexpr std::uint64_t kMaxSafetensorsTensors = 100'000;
inline constexpr std::uint64_t kMaxSafetensorsKeys = 10'000;

// The safetensors container: header length, JSON header, tensor data.
// https://github.com/huggingface/safetensors#format

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
