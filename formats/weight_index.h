// model.safetensors.index.json, pytorch_model.bin.index.json: which shard holds which tensor.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "formats/checkpoint.h"

namespace regroup {

inline constexpr std::string_view kIndexFile = "model.safetensors.index.json";
inline constexpr std::string_view kSingleFile = "model.safetensors";
inline constexpr std::string_view kTorchIndexFile = "pytorch_model.bin.index.json";
inline constexpr std::string_view kTorchSingleFile = "pytorch_model.bin";

/// Opens all shards an index names, whatever their container. Throws kBadInput when one is missing,
/// lies outside the directory, or holds other tensors than the index says.
std::vector<Checkpoint::Part> open_indexed_shards(const std::filesystem::path& index);

/// The bytes of all tensors that an index records as metadata.total_size; nothing where it does
/// not.
std::optional<std::uint64_t> total_size_of_index(const std::filesystem::path& index);

/// What a container calls its files.
struct WeightNames {
  std::string_view stem, extension;
};
inline constexpr WeightNames kSafetensorsWeightNames{"model", ".safetensors"};
inline constexpr WeightNames kTorchWeightNames{"pytorch_model", ".bin"};

/// "model-00001-of-00003.safetensors" for shard 0 of 3; "model.safetensors" where there is one.
std::string shard_name(std::size_t shard, std::size_t count,
                       const WeightNames& names = kSafetensorsWeightNames);

/// Text of an index: tensor names with the number of their shard.
std::string encode_index(std::span<const std::pair<std::string, std::size_t>> tensors,
                         std::size_t shard_count, std::uint64_t total_bytes,
                         const WeightNames& names = kSafetensorsWeightNames);

}  // namespace regroup
