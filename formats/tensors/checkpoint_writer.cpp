#include "formats/tensors/checkpoint_writer.h"

#include <algorithm>
#include <utility>

#include "formats/base/error.h"
#include "formats/base/printable.h"
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
    throw_environment("{}: {} bytes free, {} needed", printable(directory.string(), 0),
                      space.available, bytes);
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

}  // namespace regroup
