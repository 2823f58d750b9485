// Writes checkpoints whose tensors are all known beforehand: the layout first, then the bytes as
// they come, one tensor at a time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "formats/base/file.h"
#include "formats/checkpoint/checkpoint.h"

namespace regroup {

/// Bytes per shard that Hugging Face writers use unless told otherwise.
inline constexpr std::uint64_t kDefaultShardBytes = 5'000'000'000;

/// A tensor still to be written.
struct OutputTensor {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;
  /// Where its bytes stand already, if it is to be a copy: a container that is free to choose puts
  /// it where filesystems can share blocks.
  std::optional<ByteRange> stands = std::nullopt;
  /// Whether they do on a filesystem where they then take no room again.
  bool shareable = false;
};

/// Takes the bytes of a tensor, part after part.
using TensorSink = std::function<void(std::span<const std::byte>)>;
/// Gives them.
using TensorParts = std::function<void(const TensorSink&)>;

/// The tensors, in order, as runs of at most `max_bytes` each; a larger tensor stands alone. There
/// is always one run, if an empty one.
std::vector<std::span<const OutputTensor>> split_into_shards(std::span<const OutputTensor> tensors,
                                                             std::uint64_t max_bytes);

/// What every container's writer has in common: each tensor has its place, is written there once,
/// and none is forgotten. A container's constructor creates the files and their headers.
class CheckpointWriter {
 public:
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;
  virtual ~CheckpointWriter() = default;

  /// Writes one whole tensor. Throws kUsage for an unknown name, a wrong length or a second time.
  void write(const std::string& name, std::span<const std::byte> bytes);

  /// The same, of parts that are written as they come. Throws what `parts` throws, too.
  virtual void write_parts(const std::string& name, const TensorParts& parts);

  /// Copies a tensor of `source` unchanged, inside the kernel where possible.
  virtual void copy(const std::string& name, const Checkpoint& source, const TensorInfo& tensor);

  /// Flushes everything to the device. Throws kUsage if a tensor was never written.
  virtual void finish();

  /// Bytes of one announced tensor.
  std::uint64_t bytes_of(const std::string& name) const { return slots_.at(name).bytes; }

  /// Bytes of all tensors, headers not counted.
  std::uint64_t total_bytes() const { return total_bytes_; }

 protected:
  CheckpointWriter() = default;

  /// Where one tensor goes.
  struct Slot {
    std::size_t file = 0;      ///< of those added
    std::uint64_t offset = 0;  ///< in that file
    std::uint64_t bytes = 0;
    bool written = false;
  };

  /// Creates a file to write to; its number is that of the files added before.
  File& add_file(const std::filesystem::path& path);
  File& file(std::size_t number) { return files_[number]; }

  /// copy() that sees every byte.
  void write_through_memory(const std::string& name, const Checkpoint& source,
                            const TensorInfo& tensor);

  /// Announces a tensor. Throws kUsage for a name that was announced before.
  void place(const std::string& name, const Slot& slot);

 private:
  Slot& unwritten(const std::string& name);

  std::vector<File> files_;
  std::unordered_map<std::string, Slot> slots_;
  std::uint64_t total_bytes_ = 0;
};

/// Throws kEnvironment when the filesystem of `directory` has fewer than `bytes` bytes free.
void check_free_space(const std::filesystem::path& directory, std::uint64_t bytes);

}  // namespace regroup
