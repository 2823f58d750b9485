#include "formats/tensors/checkpoint_writer.h"

#include <algorithm>
#include <utility>

#include "formats/base/error.h"
#include "formats/base/printable.h"
#include "formats/base/ranges.h"
#include "formats/base/staged_directory.h"
#include "formats/tensors/gguf.h"
#include "formats/tensors/safetensors.h"
#include "formats/tensors/tensor_reader.h"

namespace regroup {
namespace {

void check_length(const std::string& name, std::uint64_t given, std::uint64_t announced) {
  if (given != announced) {
    throw_usage("tensor {}: {} bytes given, {} announced", printable(name), given, announced);
  }
}

}  // namespace

std::vector<std::span<const OutputTensor>> split_into_shards(std::span<const OutputTensor> tensors,
                                                             std::uint64_t max_bytes) {
  std::vector<std::span<const OutputTensor>> shards;
  std::size_t begin = 0;
  std::uint64_t filled = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const std::uint64_t bytes = tensor_bytes(tensors[i].dtype, tensors[i].shape);
    if (filled > 0 && bytes > max_bytes - std::min(filled, max_bytes)) {
      shards.push_back(tensors.subspan(begin, i - begin));
      begin = i;
      filled = 0;
    }
    filled += bytes;
  }
  shards.push_back(tensors.subspan(begin));
  return shards;
}

void check_free_space(const std::filesystem::path& directory, std::uint64_t bytes) {
  std::error_code unknown;
  const std::filesystem::space_info space = std::filesystem::space(directory, unknown);
  if (!unknown && space.available < bytes) {
    constexpr double kMebibyte = 1U << 20;
    throw_environment("{}: too little space: {} bytes free, {} needed, {:.1f} MiB more",
                      printable_path(name_when_published(directory)),
                      fmt::group_digits(space.available), fmt::group_digits(bytes),
                      static_cast<double>(bytes - space.available) / kMebibyte);
  }
}

File& CheckpointWriter::add_file(const std::filesystem::path& path, OutputFiles files) {
  files_.push_back(files == OutputFiles::kCreated ? File::create(path)
                                                  : File::open_or_create(path));
  return files_.back();
}

void CheckpointWriter::place(const std::string& name, const Slot& slot) {
  if (!slots_.emplace(name, slot).second) {
    throw_usage("tensor {} is to be written twice", printable(name));
  }
  total_bytes_ += slot.bytes;
}

CheckpointWriter::Slot& CheckpointWriter::unwritten(const std::string& name) {
  const auto found = slots_.find(name);
  if (found == slots_.end()) {
    throw_usage("tensor {} was not announced to the writer", printable(name));
  }
  if (found->second.written) {
    throw_usage("tensor {} is written twice", printable(name));
  }
  return found->second;
}

void CheckpointWriter::write(const std::string& name, std::span<const std::byte> bytes) {
  write_parts(name, [&](const TensorSink& sink) { sink(bytes); });
}

void CheckpointWriter::write_parts(const std::string& name, const TensorParts& parts) {
  Slot& slot = unwritten(name);
  File& file = files_[slot.file];
  std::uint64_t given = 0;
  parts([&](std::span<const std::byte> part) {
    const std::uint64_t at = slot.offset + given;
    given += part.size();
    if (given > slot.bytes) {
      check_length(name, given, slot.bytes);
    }
    file.write_at(at, part);
  });
  check_length(name, given, slot.bytes);
  file.start_writing(slot.offset, slot.bytes);
  slot.written = true;
}

void CheckpointWriter::write_through_memory(const std::string& name, const Checkpoint& source,
                                            const TensorInfo& tensor) {
  write_parts(name, [&](const TensorSink& sink) {
    for_each_part(TensorReader(source, tensor),
                  [&](std::uint64_t, std::span<const std::byte> part) { sink(part); });
  });
}

void CheckpointWriter::copy(const std::string& name, const Checkpoint& source,
                            const TensorInfo& tensor) {
  const std::vector<ByteRange> ranges = ranges_of(tensor);
  if (ranges.empty()) {
    write_through_memory(name, source, tensor);
    return;
  }
  Slot& slot = unwritten(name);
  check_length(name, tensor.bytes(), slot.bytes);
  std::uint64_t done = 0;
  for (const ByteRange& range : ranges) {
    const std::uint64_t length = range.end - range.begin;
    files_[slot.file].copy_from(source.files()[range.file], range.begin, slot.offset + done,
                                length);
    done += length;
  }
  slot.written = true;
}

void CheckpointWriter::finish() {
  for (const auto& [name, slot] : slots_) {
    if (!slot.written) {
      throw_usage("tensor {} was announced but never written", printable(name));
    }
  }
  finish_share();
}

void CheckpointWriter::finish_share() {
  for (File& file : files_) {
    file.sync_and_close();
  }
}

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
  if (shards.size() > 1) {
    shards.clear();
    for (const Run& run : split_at_files(tensors)) {
      append(shards, split_into_shards(run, max_bytes));
    }
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

}  // namespace

SafetensorsWriter::SafetensorsWriter(const std::filesystem::path& directory,
                                     std::span<const OutputTensor> tensors,
                                     std::map<std::string, std::string> metadata,
                                     std::uint64_t max_shard_bytes, OutputFiles files) {
  metadata["format"] = "pt";  // several loaders refuse a file without it
  const auto shards = lay_out(tensors, max_shard_bytes);
  const bool created = files == OutputFiles::kCreated;
  if (created) {
    std::uint64_t room = 0;
    for (const Shard& shard : shards) {
      room += shard.room;
    }
    check_free_space(directory, room);
  }
  std::vector<std::pair<std::string, std::size_t>> placed;
  for (std::size_t i = 0; i < shards.size(); ++i) {
    const std::string header =
        encode_safetensors_header(shards[i].tensors, metadata, shards[i].data_in_block);
    File& file = add_file(directory / shard_name(i, shards.size()), files);
    if (created) {
      file.write_at(0, header);
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

namespace {

void put_string(std::string& out, std::string_view text) {
  append_number<std::uint64_t>(out, text.size());
  out += text;
}

void put_tensor(std::string& out, const OutputTensor& tensor, std::uint64_t offset) {
  const auto type = ggml_type_of(tensor.dtype);
  if (!type || tensor.shape.size() > kMaxGgufDimensions ||
      tensor.name.size() > kMaxGgufTensorName) {
    throw_usage(
        "tensor {} ({} {}) does not fit a GGUF file, which holds ggml's types, up to {} "
        "dimensions and names up to {} bytes",
        printable(tensor.name), name_of(tensor.dtype), text_of(tensor.shape), kMaxGgufDimensions,
        kMaxGgufTensorName);
  }
  put_string(out, tensor.name);
  append_number(out, static_cast<std::uint32_t>(tensor.shape.size()));
  for (auto size = tensor.shape.rbegin(); size != tensor.shape.rend(); ++size) {
    append_number(out, *size);
  }
  append_number(out, *type);
  append_number(out, offset);
}

std::uint64_t pad(std::uint64_t offset, std::uint64_t alignment) {
  const auto padded = padded_to(offset, alignment);
  if (!padded) {
    throw_usage("the tensors' bytes overflow a GGUF file's offsets");
  }
  return *padded;
}

struct GgufLayout {
  std::string header;
  std::vector<std::uint64_t> offsets;  // in the data section
  std::uint64_t data_bytes = 0;        // padding included
};

// The part of a file before the descriptions of its tensors.
std::string encode_metadata(const GgufMetadata& metadata, std::size_t tensors) {
  std::string header(kGgufMagic);
  append_number(header, kGgufVersion);
  append_number<std::uint64_t>(header, tensors);
  append_number<std::uint64_t>(header, metadata.entries().size());
  for (const GgufMetadata::Entry& entry : metadata.entries()) {
    put_string(header, entry.key);
    append_number(header, static_cast<std::uint32_t>(entry.type));
    header += entry.bytes;
  }
  return header;
}

GgufLayout lay_out(const GgufMetadata& metadata, std::span<const OutputTensor> tensors,
                   std::uint64_t alignment) {
  GgufLayout layout;
  layout.header = encode_metadata(metadata, tensors.size());
  for (const OutputTensor& tensor : tensors) {
    layout.offsets.push_back(layout.data_bytes);
    put_tensor(layout.header, tensor, layout.data_bytes);
    const std::uint64_t bytes = tensor_bytes(tensor.dtype, tensor.shape);
    layout.data_bytes = pad(layout.data_bytes + bytes, alignment);
  }
  layout.header.resize(pad(layout.header.size(), alignment));
  return layout;
}

}  // namespace

std::string encode_gguf(const GgufMetadata& metadata) {
  return lay_out(metadata, {}, gguf_alignment(metadata)).header;
}

GgufWriter::GgufWriter(const std::filesystem::path& path, const GgufMetadata& metadata,
                       std::span<const OutputTensor> tensors) {
  const GgufLayout layout = lay_out(metadata, tensors, gguf_alignment(metadata));
  check_free_space(path.parent_path(), layout.header.size() + layout.data_bytes);
  File& file = add_file(path);
  file.write_at(0, layout.header);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    place(tensors[i].name, {0, layout.header.size() + layout.offsets[i],
                            tensor_bytes(tensors[i].dtype, tensors[i].shape), false});
  }
  // Padding between tensors is left unwritten. After the last tensor the file must be extended to
  // include it.
  if (layout.data_bytes > 0) {
    const std::byte zero{0};
    file.write_at(layout.header.size() + layout.data_bytes - 1, std::span(&zero, 1));
  }
}

void overwrite_metadata(const std::filesystem::path& path, std::size_t tensors,
                        const GgufMetadata& before, const GgufMetadata& after) {
  const std::string header = encode_metadata(after, tensors);
  const std::size_t present = encode_metadata(before, tensors).size();
  if (header.size() != present) {
    throw_usage("metadata of {} bytes in place of {}", header.size(), present);
  }
  File file = File::open_or_create(path);
  file.write_at(0, header);
  file.sync_and_close();
}

}  // namespace regroup
