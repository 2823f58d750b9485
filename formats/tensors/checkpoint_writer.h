// Writes checkpoints: safetensors, torch and GGUF files. All tensors are announced first, which
// fixes the layout; then their bytes are written, one tensor at a time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "formats/base/file.h"
#include "formats/tensors/checkpoint.h"
#include "formats/tensors/gguf_metadata.h"
#include "formats/tensors/zip_archive.h"

namespace regroup {

/// Default shard size of Hugging Face writers, in bytes.
inline constexpr std::uint64_t kDefaultShardBytes = 5'000'000'000;

/// A tensor to be written.
struct OutputTensor {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;
  /// For an unchanged copy, where its bytes are now. A container that can choose the offset aligns
  /// it so that filesystems can share blocks.
  std::optional<ByteRange> stands = std::nullopt;
  /// Whether the filesystem can share those bytes, so that the copy takes no space.
  bool shareable = false;
};

/// Receives the bytes of a tensor in consecutive parts.
using TensorSink = std::function<void(std::span<const std::byte>)>;
/// Produces them: calls the sink once per part.
using TensorParts = std::function<void(const TensorSink&)>;

/// Splits the tensors, in order, into shards of at most `max_bytes`. A larger tensor gets a shard
/// of its own. Returns at least one shard, which may be empty.
std::vector<std::span<const OutputTensor>> split_into_shards(std::span<const OutputTensor> tensors,
                                                             std::uint64_t max_bytes);

/// Whether a writer creates its files, or writes into those that another process has created with
/// the same tensors, so that several processes write one checkpoint.
enum class OutputFiles { kCreated, kJoined };

/// Base of all container writers: each tensor has a fixed place and must be written exactly once.
/// The derived constructor creates the files and their headers.
class CheckpointWriter {
 public:
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;
  virtual ~CheckpointWriter() = default;

  /// Writes one whole tensor. Throws kUsage for an unknown name, a wrong length or a tensor written
  /// before.
  void write(const std::string& name, std::span<const std::byte> bytes);

  /// The same, streaming: parts are written as they arrive. Also throws what `parts` throws.
  virtual void write_parts(const std::string& name, const TensorParts& parts);

  /// Copies a tensor of `source` unchanged, inside the kernel where possible.
  virtual void copy(const std::string& name, const Checkpoint& source, const TensorInfo& tensor);

  /// Flushes everything to the device. Throws kUsage if a tensor was not written.
  virtual void finish();

  /// The same for one of several processes: tensors that were not written here, another one writes.
  void finish_share();

  /// Bytes of an announced tensor.
  std::uint64_t bytes_of(const std::string& name) const { return slots_.at(name).bytes; }

  /// Bytes of all tensors without headers.
  std::uint64_t total_bytes() const { return total_bytes_; }

 protected:
  CheckpointWriter() = default;

  /// The place of one tensor.
  struct Slot {
    std::size_t file = 0;      ///< in the order of add_file()
    std::uint64_t offset = 0;  ///< in that file
    std::uint64_t bytes = 0;
    bool written = false;
  };

  /// Adds an output file. Files are numbered from 0 in this order.
  File& add_file(const std::filesystem::path& path, OutputFiles files = OutputFiles::kCreated);
  File& file(std::size_t number) { return files_[number]; }

  /// copy() through memory, for writers that need to see every byte.
  void write_through_memory(const std::string& name, const Checkpoint& source,
                            const TensorInfo& tensor);

  /// Announces a tensor. Throws kUsage for a duplicate name.
  void place(const std::string& name, const Slot& slot);

 private:
  Slot& unwritten(const std::string& name);

  std::vector<File> files_;
  std::unordered_map<std::string, Slot> slots_;
  std::uint64_t total_bytes_ = 0;
};

/// Throws kEnvironment if the filesystem of `directory` has less than `bytes` bytes free.
void check_free_space(const std::filesystem::path& directory, std::uint64_t bytes);

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

/// Torch files (.bin), in torch.save()'s layout. All data passes through memory in chunks, because
/// a ZIP archive stores its CRC.
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

// One GGUF file of version 3.

/// A file without tensors.
std::string encode_gguf(const GgufMetadata& metadata);

/// Overwrites the metadata of a file with `tensors` tensors that GgufWriter wrote with `before`,
/// and flushes it. Throws kUsage unless both have the same length.
void overwrite_metadata(const std::filesystem::path& path, std::size_t tensors,
                        const GgufMetadata& before, const GgufMetadata& after);

class GgufWriter : public CheckpointWriter {
 public:
  /// Creates the file at `path`, lays the tensors out in the given order with the alignment in
  /// `metadata`, and writes everything before the tensor data. Throws kUsage for a tensor that the
  /// format cannot hold (dtype, dimensions, name length), kEnvironment if there is not enough free
  /// space.
  GgufWriter(const std::filesystem::path& path, const GgufMetadata& metadata,
             std::span<const OutputTensor> tensors);
};

}  // namespace regroup
