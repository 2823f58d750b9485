#include "formats/safetensors_writer.h"

#include <utility>
#include <vector>

#include "formats/safetensors.h"
#include "formats/weight_index.h"

namespace regroup {
namespace {

// Each shard's tensors, one behind the other.
std::vector<std::vector<TensorInfo>> lay_out(std::span<const OutputTensor> tensors,
                                             std::uint64_t max_bytes) {
  std::vector<std::vector<TensorInfo>> shards;
  for (const std::span<const OutputTensor> shard : split_into_shards(tensors, max_bytes)) {
    std::uint64_t end = 0;
    shards.emplace_back();
    for (const OutputTensor& tensor : shard) {
      const std::uint64_t begin =
          std::exchange(end, end + tensor_bytes(tensor.dtype, tensor.shape));
      shards.back().push_back({tensor.name, tensor.dtype, tensor.shape, 0, begin, end, {}});
    }
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
  const auto shards = lay_out(tensors, max_shard_bytes);
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
