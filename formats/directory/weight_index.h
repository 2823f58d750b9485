// model.safetensors.index.json, pytorch_model.bin.index.json: which shard holds which tensor.
#pragma once

#include <filesystem>
#include <optional>
#include <vector>

#include "formats/checkpoint/checkpoint.h"
#include "formats/checkpoint/shard_names.h"

namespace regroup {

/// Opens all shards an index names, whatever their container. Throws kBadInput when one is missing,
/// lies outside the directory, or holds other tensors than the index says.
std::vector<Checkpoint::Part> open_indexed_shards(const std::filesystem::path& index);

/// The bytes of all tensors that an index records as metadata.total_size; nothing where it does
/// not.
std::optional<std::uint64_t> total_size_of_index(const std::filesystem::path& index);

}  // namespace regroup
