#include <limits>

#include <fmt/format.h>

#include "formats/base/checksum.h"
#include "formats/base/error.h"
#include "formats/base/printable.h"
#include "formats/tensors/checkpoint_writer.h"
#include "formats/tensors/torch_checkpoint.h"

namespace regroup {

namespace {

template <typename T>
std::string little_endian(T number) {
  std::string bytes;
  append_number(bytes, number);
  return bytes;
}

std::string text(std::string_view value) {  // BINUNICODE
  return "X" + little_endian(static_cast<std::uint32_t>(value.size())) + std::string(value);
}

std::string integer(std::int64_t value) {  // BININT, LONG1
  return value <= std::numeric_limits<std::int32_t>::max()
             ? "J" + little_endian(static_cast<std::int32_t>(value))
             : "\x8a\x08" + little_endian(value);
}

std::string global(std::string_view module, std::string_view name) {
  return fmt::format("c{}\n{}\n", module, name);
}

std::string tuple_of(const Shape& numbers) {
  std::string items;
  for (const std::int64_t number : numbers) {
    items += integer(number);
  }
  return "(" + items + "t";
}

Shape row_major_strides(const Shape& shape) {
  Shape strides(shape.size(), 1);
  for (std::size_t i = shape.size(); i-- > 1;) {
    strides[i - 1] = strides[i] * std::max<std::int64_t>(shape[i], 1);
  }
  return strides;
}

std::string empty_dict() { return global("collections", "OrderedDict") + ")R"; }

// A persistent id: ("storage", class, key, device, elements).
std::string storage_of(const OutputTensor& tensor, const TorchNumbers& numbers, std::size_t key) {
  const std::uint64_t bytes = tensor_bytes(tensor.dtype, tensor.shape);
  const bool untyped = numbers.storage_class.empty();
  const std::uint64_t count = untyped ? bytes : bytes / (bits_of(tensor.dtype) / 8);
  return "(" + text("storage") +
         (untyped ? global("torch.storage", "UntypedStorage")
                  : global("torch", numbers.storage_class)) +
         text(std::to_string(key)) + text("cpu") + integer(static_cast<std::int64_t>(count)) + "tQ";
}

// The call that rebuilds a tensor: storage, offset, shape, strides, no gradient, no hooks.
std::string pickle_tensor(const OutputTensor& tensor, std::size_t key) {
  const TorchNumbers* numbers = torch_numbers_of(tensor.dtype);
  if (numbers == nullptr) {
    throw_usage("tensor {}: torch files hold no {}", printable(tensor.name), name_of(tensor.dtype));
  }
  const bool names_dtype = !numbers->name.empty();
  return global("torch._utils", names_dtype ? "_rebuild_tensor_v3" : "_rebuild_tensor_v2") + "(" +
         storage_of(tensor, *numbers, key) + integer(0) + tuple_of(tensor.shape) +
         tuple_of(row_major_strides(tensor.shape)) + "\x89" + empty_dict() +
         (names_dtype ? global("torch", numbers->name) : "") + "tR";
}

// A protocol 2 pickle, an OrderedDict in which tensor i is row-major in storage "i". Throws kUsage
// naming a tensor whose dtype torch does not support.
std::string pickle_state_dict(std::span<const OutputTensor> tensors) {
  std::string pickle = "\x80\x02" + empty_dict() + "(";
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    pickle += text(tensors[i].name) + pickle_tensor(tensors[i], i);
  }
  return pickle + "u.";
}

}  // namespace

TorchWriter::TorchWriter(const std::filesystem::path& directory,
                         std::span<const OutputTensor> tensors, std::uint64_t max_shard_bytes) {
  const auto shards = split_into_shards(tensors, max_shard_bytes);
  std::vector<std::string> pickles;  // made before any file, because a tensor may be refused
  std::uint64_t bytes = 0;
  for (const std::span<const OutputTensor> shard : shards) {
    pickles.push_back(pickle_state_dict(shard));
    for (const OutputTensor& tensor : shard) {
      bytes += tensor_bytes(tensor.dtype, tensor.shape);
    }
  }
  check_free_space(directory, bytes);
  archives_.resize(shards.size());
  std::vector<std::pair<std::string, std::size_t>> placed;
  for (std::size_t i = 0; i < shards.size(); ++i) {
    const std::filesystem::path name = shard_name(i, shards.size(), kTorchWeightNames);
    add_file(directory / name);
    lay_out(i, name.stem().string(), pickles[i], shards[i]);
    for (const OutputTensor& tensor : shards[i]) {
      placed.emplace_back(tensor.name, i);
    }
  }
  if (shards.size() > 1) {
    write_text(directory / kTorchIndexFile,
               encode_index(placed, shards.size(), total_bytes(), kTorchWeightNames));
  }
}

// Adds the entries in torch's order, in a folder that has the name of the file.
void TorchWriter::lay_out(std::size_t archive, const std::string& folder, std::string_view pickle,
                          std::span<const OutputTensor> tensors) {
  ZipLayout& layout = archives_[archive];
  add_text(archive, folder + "/data.pkl", pickle);
  add_text(archive, folder + "/.format_version", "1");
  add_text(archive, folder + "/.storage_alignment", std::to_string(ZipLayout::kAlignment));
  add_text(archive, folder + "/byteorder", "little");
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const std::uint64_t bytes = tensor_bytes(tensors[i].dtype, tensors[i].shape);
    const std::size_t entry = layout.add(fmt::format("{}/data/{}", folder, i), bytes);
    file(archive).write_at(layout.entry(entry).header_at, layout.header(entry));
    place(tensors[i].name, {archive, layout.entry(entry).data_at, bytes, false});
    entries_.emplace(tensors[i].name, EntryOfTensor{archive, entry});
  }
  add_text(archive, folder + "/version", "3\n");
}

void TorchWriter::add_text(std::size_t archive, std::string name, std::string_view text) {
  ZipLayout& layout = archives_[archive];
  const std::size_t entry = layout.add(std::move(name), text.size());
  layout.set_crc32(entry, crc32_of(std::as_bytes(std::span(text))));
  const std::string whole = layout.header(entry) + std::string(text) + layout.trailer(entry);
  file(archive).write_at(layout.entry(entry).header_at, whole);
}

void TorchWriter::write_trailer(const std::string& name, std::uint32_t crc32) {
  const EntryOfTensor& place = entries_.at(name);
  ZipLayout& layout = archives_[place.archive];
  layout.set_crc32(place.entry, crc32);
  const ZipEntry& entry = layout.entry(place.entry);
  file(place.archive).write_at(entry.data_at + entry.size, layout.trailer(place.entry));
}

void TorchWriter::write_parts(const std::string& name, const TensorParts& parts) {
  std::uint32_t crc32 = 0;
  CheckpointWriter::write_parts(name, [&](const TensorSink& sink) {
    parts([&](std::span<const std::byte> part) {
      crc32 = crc32_of(part, crc32);
      sink(part);
    });
  });
  write_trailer(name, crc32);
}

void TorchWriter::copy(const std::string& name, const Checkpoint& source,
                       const TensorInfo& tensor) {
  write_through_memory(name, source, tensor);
}

void TorchWriter::finish() {
  for (std::size_t i = 0; i < archives_.size(); ++i) {
    file(i).write_at(archives_[i].directory_at(), archives_[i].directory());
  }
  CheckpointWriter::finish();
}

}  // namespace regroup
