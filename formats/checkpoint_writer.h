// Writes safetensors files whose tensors are all known beforehand: headers first, then the bytes
// as they come, one tensor at a time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "formats/checkpoint.h"
#include "formats/file.h"

namespace regroup {

/// A tensor still to be written.
struct OutputTensor {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;
};

/// Bytes per shard that Hugging Face writers use unless told otherwise.
inline constexpr std::uint64_t kDefaultShardBytes = 5'000'000'000;

class CheckpointWriter {
 public:
  /// Lays the tensors out, in the order given, as `directory`/model.safetensors or, where they
  /// exceed `max_shard_bytes`, as numbered shards with an index; creates the files and writes their
  /// headers. Throws kEnvironment when the free space cannot suffice. `metadata` goes into every
  /// file, beside "format": "pt".
  CheckpointWriter(std::filesystem::path directory, std::span<const OutputTensor> tensors,
                   std::map<std::string, std::string> metadata,
                   std::uint64_t max_shard_bytes = kDefaultShardBytes);

  /// Writes one whole tensor. Throws kUsage for an unknown name, a wrong length or a second time.
  void write(const std::string& name, std::span<const std::byte> bytes);

  /// Copies a tensor of `source` unchanged, inside the kernel where possible.
  void copy(const std::string& name, const Checkpoint& source, const TensorInfo& tensor);

  /// Flushes everything to the device. Throws kUsage if a tensor was never written.
  void finish();

  /// Bytes of one announced tensor.
  std::uint64_t bytes_of(const std::string& name) const { return slots_.at(name).bytes; }

  /// Bytes of all tensors, headers not counted.
  std::uint64_t total_bytes() const { return total_bytes_; }

 private:
  struct Slot {
    std::size_t file = 0;
    std::uint64_t offset = 0;  // in the file
    std::uint64_t bytes = 0;
    bool written = false;
  };
  Slot& claim(const std::string& name, std::uint64_t bytes);

  std::filesystem::path directory_;
  std::vector<File> files_;
  std::unordered_map<std::string, Slot> slots_;
  std::uint64_t total_bytes_ = 0;
};

}  // namespace regroup
