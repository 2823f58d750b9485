// Writes a safetensors file, or numbered shards with an index, as Hugging Face loaders expect.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>

#include "formats/tensors/checkpoint_writer.h"

namespace regroup {

class SafetensorsWriter : public CheckpointWriter {
 public:
  /// Lays the tensors out in the given order, as `directory`/model.safetensors or, if they exceed
  /// `max_shard_bytes`, as numbered shards with an index. Creates the files and writes their
  /// headers. A shard also ends where copies continue from another source file. Before large copies
  /// the header is padded so that filesystems can share their blocks. `metadata` is added to every
  /// file, together with "format": "pt". Throws kEnvironment if there is not enough free space.
  /// With kJoined, only opens the files that another process has made with the same arguments.
  SafetensorsWriter(const std::filesystem::path& directory, std::span<const OutputTensor> tensors,
                    std::map<std::string, std::string> metadata,
                    std::uint64_t max_shard_bytes = kDefaultShardBytes,
                    OutputFiles files = OutputFiles::kCreated);
};

}  // namespace regroup
