// model.safetensors.index.json and pytorch_model.bin.index.json, which map tensors to shards.
#pragma once

#include <filesystem>
#include <optional>
#include <vector>

#include "formats/checkpoint/checkpoint.h"
#include "formats/checkpoint/shard_names.h"

namespace regroup {

/// Opens all shards that an index names, in any container. Throws kBadInput if a shard is missing,
/// is outside the directory, or its tensors differ from the index.
std::vector<Checkpoint::Part> open_indexed_shards(const std::filesystem::path& index);

/// The index's metadata.total_size, the bytes of all tensors; nothing if absent.
std::optional<std::uint64_t> total_size_of_index(const std::filesystem::path& index);

}  // namespace regroup
