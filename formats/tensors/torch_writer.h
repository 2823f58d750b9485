// Writing torch files (.bin), in torch.save()'s layout.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "formats/tensors/checkpoint_writer.h"
#include "formats/tensors/zip_archive.h"

namespace regroup {

/// All data passes through memory in chunks, because a ZIP archive stores its CRC.
class TorchWriter : public CheckpointWriter {
 public:
  /// Lays the tensors out in the given order, as `directory`/pytorch_model.bin or, if they exceed
  /// `max_shard_bytes`, as numbered shards with an index. Creates the files and writes everything
  /// except the tensors. Throws kUsage for a dtype that torch does not support, kEnvironment if
  /// there is not enough free space.
  TorchWriter(const std::filesystem::path& directory, std::span<const OutputTensor> tensors,
              std::uint64_t max_shard_bytes = kDefaultShardBytes);

  void write_parts(const std::string& name, const TensorParts& parts) override;
  void copy(const std::string& name, const Checkpoint& source, const TensorInfo& tensor) override;
  void finish() override;

 private:
  struct EntryOfTensor {
    std::size_t archive = 0;
    std::size_t entry = 0;
  };

  void lay_out(std::size_t archive, const std::string& folder, std::string_view pickle,
               std::span<const OutputTensor> tensors);
  void add_text(std::size_t archive, std::string name, std::string_view text);
  void write_trailer(const std::string& name, std::uint32_t crc32);

  std::vector<ZipLayout> archives_;  ///< one per file
  std::unordered_map<std::string, EntryOfTensor> entries_;
};

}  // namespace regroup
