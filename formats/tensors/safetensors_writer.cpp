#include "formats/tensors/safetensors_writer.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "formats/tensors/checkpoint.h"
#include "formats/tensors/safetensors.h"

namespace regroup {
namespace {

using Run = std::span<const OutputTensor>;

// From this many bytes on, copying whole blocks is worth up to one block of padding.
constexpr std::uint64_t kWorthPadding = 16 * kSharedBlock;

// Splits the tensors into runs that are each copied from one source file. Returns one run if the
// order of the tensors is not that of the source files.
std::vector<Run> split_at_files(Run tensors) {
  std::vector<Run> runs;
  std::optional<std::size_t> file;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (!tensors[i].stands || tensors[i].stands->file == file) {
      continue;
    }
    if (file && tensors[i].stands->file < *file) {
      return {tensors};
    }
    if (file) {
      runs.push_back(tensors.subspan(begin, i - begin));
      begin = i;
    }
    file = tensors[i].stands->file;
  }
  runs.push_back(tensors.subspan(begin));
  return runs;
}

// Shards of at most `max_bytes`. If there are several, shards also end where source files do.
std::vector<Run> shards_of(Run tensors, std::uint64_t max_bytes) {
  std::vector<Run> shards = split_into_shards(tensors, max_bytes);
  if (shards.size() == 1) {
    return shards;
  }
  shards.clear();
  for (const Run& run : split_at_files(tensors)) {
    const std::vector<Run> parts = split_into_shards(run, max_bytes);
    shards.insert(shards.end(), parts.begin(), parts.end());
  }
  return shards;
}

struct Shard {
  std::vector<TensorInfo> tensors;  ///< contiguous
  std::optional<std::uint64_t> data_in_block;
  std::uint64_t room = 0;  ///< bytes that the filesystem needs for them
};

// The offset in a block at which the data should begin, so that as many bytes as possible have the
// same offset in their block as in the source. None if it is not worth the padding.
std::optional<std::uint64_t> best_begin(Run tensors, std::span<const TensorInfo> placed) {
  // The number of bytes that have the same offset as in the source, by the beginning of the data.
  std::map<std::uint64_t, std::uint64_t> bytes;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].stands) {
      bytes[(tensors[i].stands->begin - placed[i].begin) % kSharedBlock] += placed[i].bytes();
    }
  }
  std::optional<std::uint64_t> best;
  std::uint64_t most = kWorthPadding;
  for (const auto& [begin, shared] : bytes) {
    if (begin % 8 == 0 && shared > most) {
      best = begin;
      most = shared;
    }
  }
  return best;
}

// The space that a tensor takes at that place. Shared blocks take none, except those at its ends.
std::uint64_t room_of(const OutputTensor& tensor, const TensorInfo& placed,
                      std::optional<std::uint64_t> data_in_block) {
  const bool shared = tensor.shareable && data_in_block &&
                      (tensor.stands->begin - *data_in_block - placed.begin) % kSharedBlock == 0;
  return shared ? std::min(placed.bytes(), 2 * kSharedBlock) : placed.bytes();
}

std::vector<Shard> lay_out(Run tensors, std::uint64_t max_bytes) {
  std::vector<Shard> shards;
  for (const Run& run : shards_of(tensors, max_bytes)) {
    std::uint64_t end = 0;
    Shard& shard = shards.emplace_back();
    for (const OutputTensor& tensor : run) {
      const std::uint64_t begin =
          std::exchange(end, end + tensor_bytes(tensor.dtype, tensor.shape));
      shard.tensors.push_back({tensor.name, tensor.dtype, tensor.shape, 0, begin, end, {}});
    }
    shard.data_in_block = best_begin(run, shard.tensors);
    for (std::size_t i = 0; i < run.size(); ++i) {
      shard.room += room_of(run[i], shard.tensors[i], shard.data_in_block);
    }
  }
  return shards;
}

std::uint64_t room_of_all(std::span<const Shard> shards) {
  std::uint64_t bytes = 0;
  for (const Shard& shard : shards) {
    bytes += shard.room;
  }
  return bytes;
}

}  // namespace

SafetensorsWriter::SafetensorsWriter(const std::filesystem::path& directory,
                                     std::span<const OutputTensor> tensors,
                                     std::map<std::string, std::string> metadata,
                                     std::uint64_t max_shard_bytes, OutputFiles files) {
  metadata["format"] = "pt";  // several loaders refuse a file without it
  const auto shards = lay_out(tensors, max_shard_bytes);
  const bool created = files == OutputFiles::kCreated;
  if (created) {
    check_free_space(directory, room_of_all(shards));
  }
  std::vector<std::pair<std::string, std::size_t>> placed;
  for (std::size_t i = 0; i < shards.size(); ++i) {
    const std::string header =
        encode_safetensors_header(shards[i].tensors, metadata, shards[i].data_in_block);
    File& file = add_file(directory / shard_name(i, shards.size()), files);
    if (created) {
      file.write_at(0, std::as_bytes(std::span(header)));
    }
    for (const TensorInfo& tensor : shards[i].tensors) {
      place(tensor.name, {i, header.size() + tensor.begin, tensor.bytes(), false});
      placed.emplace_back(tensor.name, i);
    }
  }
  if (created && shards.size() > 1) {
    write_text(directory / kIndexFile, encode_index(placed, shards.size(), total_bytes()));
  }
}

}  // namespace regroup
