#include "formats/checkpoint_writer.h"

#include <utility>

#include "formats/error.h"
#include "formats/printable.h"
#include "formats/safetensors.h"
#include "formats/weight_index.h"

namespace regroup {
namespace {

// Splits the tensors, in order, into runs of at most `max_bytes`; a larger tensor stands alone.
std::vector<std::vector<TensorInfo>> shard(std::span<const OutputTensor> tensors,
                                           std::uint64_t max_bytes) {
  std::vector<std::vector<TensorInfo>> shards(1);
  std::uint64_t filled = 0;
  for (const OutputTensor& tensor : tensors) {
    const std::uint64_t bytes = tensor_bytes(tensor.dtype, tensor.shape);
    if (filled > 0 && bytes > max_bytes - std::min(filled, max_bytes)) {
      shards.emplace_back();
      filled = 0;
    }
    shards.back().push_back(
        {tensor.name, tensor.dtype, tensor.shape, 0, filled, filled + bytes, {}});
    filled += bytes;
  }
  return shards;
}

void check_free_space(const std::filesystem::path& directory,
                      std::span<const std::vector<TensorInfo>> shards) {
  std::uint64_t needed = 0;
  for (const auto& tensors : shards) {
    needed += tensors.empty() ? 0 : tensors.back().end;
  }
  std::error_code unknown;
  const std::filesystem::space_info space = std::filesystem::space(directory, unknown);
  if (!unknown && space.available < needed) {
    throw_environment("{}: {} bytes free, {} needed", printable(directory.string(), 0),
                      space.available, needed);
  }
}

}  // namespace

CheckpointWriter::CheckpointWriter(std::filesystem::path directory,
                                   std::span<const OutputTensor> tensors,
                                   std::map<std::string, std::string> metadata,
                                   std::uint64_t max_shard_bytes)
    : directory_(std::move(directory)) {
  metadata["format"] = "pt";  // several loaders refuse a file without it
  const auto shards = shard(tensors, max_shard_bytes);
  check_free_space(directory_, shards);
  std::vector<std::pair<std::string, std::size_t>> placed;
  for (std::size_t i = 0; i < shards.size(); ++i) {
    files_.push_back(File::create(directory_ / shard_name(i, shards.size())));
    const std::string header = encode_safetensors_header(shards[i], metadata);
    files_.back().write_at(0, std::as_bytes(std::span(header)));
    for (const TensorInfo& tensor : shards[i]) {
      const Slot slot{i, header.size() + tensor.begin, tensor.bytes(), false};
      if (!slots_.emplace(tensor.name, slot).second) {
        throw_usage("tensor {} is to be written twice", printable(tensor.name));
      }
      placed.emplace_back(tensor.name, i);
      total_bytes_ += tensor.bytes();
    }
  }
  if (shards.size() > 1) {
    write_text(directory_ / kIndexFile, encode_index(placed, shards.size(), total_bytes_));
  }
}

CheckpointWriter::Slot& CheckpointWriter::claim(const std::string& name, std::uint64_t bytes) {
  const auto found = slots_.find(name);
  if (found == slots_.end()) {
    throw_usage("tensor {} was not announced to the writer", printable(name));
  }
  if (found->second.bytes != bytes) {
    throw_usage("tensor {}: {} bytes given, {} announced", printable(name), bytes,
                found->second.bytes);
  }
  if (std::exchange(found->second.written, true)) {
    throw_usage("tensor {} is written twice", printable(name));
  }
  return found->second;
}

void CheckpointWriter::write(const std::string& name, std::span<const std::byte> bytes) {
  const Slot& slot = claim(name, bytes.size());
  files_[slot.file].write_at(slot.offset, bytes);
}

void CheckpointWriter::copy(const std::string& name, const Checkpoint& source,
                            const TensorInfo& tensor) {
  const Slot& slot = claim(name, tensor.bytes());
  if (!tensor.contiguous()) {
    std::vector<std::byte> bytes(tensor.bytes());
    source.read(tensor, bytes);
    files_[slot.file].write_at(slot.offset, bytes);
    return;
  }
  files_[slot.file].copy_from(source.file_of(tensor), tensor.begin, slot.offset, tensor.bytes());
}

void CheckpointWriter::finish() {
  for (const auto& [name, slot] : slots_) {
    if (!slot.written) {
      throw_usage("tensor {} was announced but never written", printable(name));
    }
  }
  for (File& file : files_) {
    file.sync_and_close();
  }
}

}  // namespace regroup
