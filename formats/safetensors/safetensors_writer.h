// Writes safetensors files, one or numbered shards with an index, as Hugging Face loaders expect.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>

#include "formats/checkpoint/checkpoint_writer.h"

namespace regroup {

class SafetensorsWriter : public CheckpointWriter {
 public:
  /// Lays the tensors out, in the order given, as `directory`/model.safetensors or, where they
  /// exceed `max_shard_bytes`, as numbered shards with an index; creates the files and writes their
  /// headers. Shards also end where copies go on in another file, and where copies are large the
  /// header is padded so that filesystems can share their blocks. Throws kEnvironment when the free
  /// space cannot suffice. `metadata` goes into every file, beside "format": "pt".
  SafetensorsWriter(const std::filesystem::path& directory, std::span<const OutputTensor> tensors,
                    std::map<std::string, std::string> metadata,
                    std::uint64_t max_shard_bytes = kDefaultShardBytes);
};

}  // namespace regroup
