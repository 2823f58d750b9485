#include "formats/tensors/checkpoint.h"

#include <cstring>
#include <iterator>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "formats/base/error.h"
#include "formats/base/printable.h"

namespace regroup {

std::string text_of(const Shape& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

namespace {

// Copies strided elements to row-major order. `at` is the first element of dimension `dimension`.
void gather(const TensorInfo& tensor, std::span<const std::byte> stored, std::size_t dimension,
            std::int64_t at, std::span<std::byte>& out) {
  const std::size_t size = bits_of(tensor.dtype) / 8;
  if (dimension == tensor.shape.size()) {
    std::memcpy(out.data(), stored.data() + static_cast<std::size_t>(at) * size, size);
    out = out.subspan(size);
    return;
  }
  for (std::int64_t i = 0; i < tensor.shape[dimension]; ++i) {
    gather(tensor, stored, dimension + 1, at + i * tensor.strides[dimension], out);
  }
}

}  // namespace

std::uint64_t TensorInfo::bytes() const {
  return contiguous() ? end - begin : tensor_bytes(dtype, shape);
}

std::vector<ByteRange> ranges_of(const TensorInfo& tensor) {
  if (tensor.contiguous()) {
    return {{tensor.file, tensor.begin, tensor.end}};
  }
  std::vector<ByteRange> ranges;
  for (const TensorInfo& piece : tensor.pieces) {
    if (!piece.contiguous() || tensor.joint != 0) {
      return {};
    }
    ranges.push_back({piece.file, piece.begin, piece.end});
  }
  return ranges;
}

std::int64_t TensorInfo::elements() const { return element_count(shape); }

std::uint64_t tensor_bytes(DType dtype, const Shape& shape) {
  std::uint64_t elements = 1;
  for (const std::int64_t size : shape) {
    if (size < 0 || __builtin_mul_overflow(elements, static_cast<std::uint64_t>(size), &elements)) {
      throw_bad_input("shape {} has too many elements", text_of(shape));
    }
  }
  const std::uint64_t in_block = block_elements(dtype);
  const std::uint64_t row = shape.empty() ? 1 : static_cast<std::uint64_t>(shape.back());
  if (is_block_type(dtype) && row % in_block != 0) {
    throw_bad_input("rows of {} elements are not whole blocks of {}, which have {} elements", row,
                    name_of(dtype), in_block);
  }
  if (elements % in_block != 0) {
    throw_bad_input("shape {} of {} does not fill whole bytes", text_of(shape), name_of(dtype));
  }
  std::uint64_t bytes = 0;
  if (__builtin_mul_overflow(elements / in_block, block_bytes(dtype), &bytes)) {
    throw_bad_input("shape {} of {} has too many bytes", text_of(shape), name_of(dtype));
  }
  return bytes;
}

Checkpoint::Checkpoint(std::vector<Part> parts) {
  std::size_t tensors = 0;
  for (const Part& part : parts) {
    tensors += part.tensors.size();
  }
  tensors_.reserve(tensors);
  files_.reserve(parts.size());
  for (Part& part : parts) {
    for (TensorInfo& tensor : part.tensors) {
      tensor.file = files_.size();
    }
    tensors_.insert(tensors_.end(), std::make_move_iterator(part.tensors.begin()),
                    std::make_move_iterator(part.tensors.end()));
    metadata_.merge(part.metadata);
    files_.push_back(std::move(part.file));
  }
  index_names();
}

Checkpoint::Checkpoint(std::vector<File> files, std::vector<TensorInfo> tensors)
    : files_(std::move(files)), tensors_(std::move(tensors)) {
  index_names();
}

void Checkpoint::index_names() {
  by_name_ = NameTable(tensors_.size());
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    if (const auto other = by_name_.insert(tensors_[i].name, i)) {
      throw_bad_input("tensor {} is in both {} and {}", printable(tensors_[i].name),
                      file_of(tensors_[*other]).where(), file_of(tensors_[i]).where());
    }
  }
}

const TensorInfo* Checkpoint::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found ? &tensors_[*found] : nullptr;
}

const TensorInfo& Checkpoint::at(std::string_view name) const {
  const TensorInfo* tensor = find(name);
  if (tensor == nullptr) {
    throw_bad_input("{}: tensor {} is missing{}", place_of(*this), printable(name),
                    layers_found_in(*this));
  }
  return *tensor;
}

void Checkpoint::read(const TensorInfo& tensor, std::span<std::byte> out) const {
  if (out.size() != tensor.bytes()) {
    throw_usage("tensor {} has {} bytes, {} requested", printable(tensor.name), tensor.bytes(),
                out.size());
  }
  if (tensor.contiguous()) {
    file_of(tensor).read_at(tensor.begin, out);
    return;
  }
  if (!tensor.pieces.empty()) {
    read_pieces(tensor, out);
    return;
  }
  std::vector<std::byte> stored(tensor.end - tensor.begin);
  file_of(tensor).read_at(tensor.begin, stored);
  gather(tensor, stored, 0, 0, out);
}

// The dimensions before the joint make up `rows` rows. Each row concatenates one run of every
// piece.
void Checkpoint::read_pieces(const TensorInfo& tensor, std::span<std::byte> out) const {
  std::size_t rows = 1;
  for (std::size_t i = 0; i < tensor.joint; ++i) {
    rows *= static_cast<std::size_t>(tensor.shape[i]);
  }
  const std::size_t row = rows == 0 ? 0 : out.size() / rows;
  std::size_t at = 0;  // the position in a row
  for (const TensorInfo& piece : tensor.pieces) {
    const std::size_t run = rows == 0 ? 0 : piece.bytes() / rows;
    if (rows == 1) {
      read(piece, out.subspan(at, run));
    } else {
      std::vector<std::byte> bytes(piece.bytes());
      read(piece, bytes);
      for (std::size_t i = 0; i < rows && run > 0; ++i) {
        std::memcpy(out.data() + i * row + at, bytes.data() + i * run, run);
      }
    }
    at += run;
  }
}

std::string shard_name(std::size_t shard, std::size_t count, const WeightNames& names) {
  return count == 1
             ? fmt::format("{}{}", names.stem, names.extension)
             : fmt::format("{}-{:05}-of-{:05}{}", names.stem, shard + 1, count, names.extension);
}

std::string encode_index(std::span<const std::pair<std::string, std::size_t>> tensors,
                         std::size_t shard_count, std::uint64_t total_bytes,
                         const WeightNames& names) {
  nlohmann::json weight_map = nlohmann::json::object();  // sorted by name, as is usual
  for (const auto& [name, shard] : tensors) {
    weight_map[name] = shard_name(shard, shard_count, names);
  }
  const nlohmann::json index = {{"metadata", {{"total_size", total_bytes}}},
                                {"weight_map", std::move(weight_map)}};
  return index.dump(2) + "\n";
}

std::string place_of(const Checkpoint& checkpoint) {
  const auto& files = checkpoint.files();
  if (files.empty()) {
    return "a model without weights";
  }
  if (files.size() == 1) {
    return files.front().where();
  }
  const auto directory = files.front().path().parent_path();
  return directory.empty() ? "." : printable_path(directory);
}

std::string place_of(const Checkpoint& checkpoint, const TensorInfo& tensor) {
  const std::string file =
      checkpoint.files().empty() ? place_of(checkpoint) : checkpoint.file_of(tensor).where();
  return fmt::format("{}: tensor {}", file, printable(tensor.name));
}

std::string layers_found_in(const Checkpoint& checkpoint) {
  constexpr std::size_t kShown = 4;
  std::set<std::string> beginnings;
  for (const TensorInfo& tensor : checkpoint.tensors()) {
    const std::size_t number = tensor.name.find_first_of("0123456789");
    if (number != std::string::npos && number > 0 && tensor.name[number - 1] == '.') {
      beginnings.insert(printable(tensor.name.substr(0, number)));
    }
  }
  return beginnings.empty() ? ""
                            : "; names of layers begin with " +
                                  first_of({beginnings.begin(), beginnings.end()}, kShown);
}

}  // namespace regroup
