// The names of weight files and shards in a model directory, and the text of their index.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace regroup {

inline constexpr std::string_view kIndexFile = "model.safetensors.index.json";
inline constexpr std::string_view kSingleFile = "model.safetensors";
inline constexpr std::string_view kTorchIndexFile = "pytorch_model.bin.index.json";
inline constexpr std::string_view kTorchSingleFile = "pytorch_model.bin";

/// File names used by a container format.
struct WeightNames {
  std::string_view stem, extension;
};
inline constexpr WeightNames kSafetensorsWeightNames{"model", ".safetensors"};
inline constexpr WeightNames kTorchWeightNames{"pytorch_model", ".bin"};

/// "model-00001-of-00003.safetensors" for shard 0 of 3; "model.safetensors" for a single shard.
std::string shard_name(std::size_t shard, std::size_t count,
                       const WeightNames& names = kSafetensorsWeightNames);

/// The JSON text of an index. `tensors` pairs each tensor name with its shard number.
std::string encode_index(std::span<const std::pair<std::string, std::size_t>> tensors,
                         std::size_t shard_count, std::uint64_t total_bytes,
                         const WeightNames& names = kSafetensorsWeightNames);

}  // namespace regroup
