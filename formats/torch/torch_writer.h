// Writes torch files (.bin), one or numbered shards with an index, as torch.save lays them out.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "formats/checkpoint/checkpoint_writer.h"
#include "formats/torch/zip_layout.h"

namespace regroup {

/// Every byte passes through memory, a chunk at a time: a ZIP archive holds its CRC.
class TorchWriter : public CheckpointWriter {
 public:
  /// Lays the tensors out, in the order given, as `directory`/pytorch_model.bin or, where they
  /// exceed `max_shard_bytes`, as numbered shards with an index; creates the files and writes all
  /// but the tensors. Throws kUsage for a dtype that torch does not have, kEnvironment when the
  /// free space cannot suffice.
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
