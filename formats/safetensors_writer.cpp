#include "formats/safetensors_writer.h"

#include <utility>
#include <vector>

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

std::uint64_t bytes_of_all(std::span<const std::vector<TensorInfo>> shards) {
  std::uint64_t bytes = 0;
  for (const auto& tensors : shards) {
    bytes += tensors.empty() ? 0 : tensors.back().end;
  }
  return bytes;
}

}  // namespace

SafetensorsWriter::SafetensorsWriter(const std::filesystem::path& directory,
                                     std::span<const OutputTensor> tensors,
                                     std::map<std::string, std::string> metadata,
                                     std::uint64_t max_shard_bytes) {
  metadata["format"] = "pt";  // several loaders refuse a file without it
  const auto shards = shard(tensors, max_shard_bytes);
  check_free_space(directory, bytes_of_all(shards));
  std::vector<std::pair<std::string, std::size_t>> placed;
  for (std::size_t i = 0; i < shards.size(); ++i) {
    const std::string header = encode_safetensors_header(shards[i], metadata);
    add_file(directory / shard_name(i, shards.size()))
        .write_at(0, std::as_bytes(std::span(header)));
    for (const TensorInfo& tensor : shards[i]) {
      place(tensor.name, {i, header.size() + tensor.begin, tensor.bytes(), false});
      placed.emplace_back(tensor.name, i);
    }
  }
  if (shards.size() > 1) {
    write_text(directory / kIndexFile, encode_index(placed, shards.size(), total_bytes()));
  }
}

}  // namespace regroup
