#include "formats/checkpoint.h"

#include <cstring>
#include <iterator>

#include <fmt/ranges.h>

#include "formats/error.h"
#include "formats/printable.h"

namespace regroup {

std::string text_of(const Shape& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

namespace {

// Row-major elements out of strided ones; `at` is the first element of dimension `dimension`.
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
  return contiguous() ? end - begin : static_cast<std::uint64_t>(elements()) * (bits_of(dtype) / 8);
}

std::int64_t TensorInfo::elements() const {
  std::int64_t product = 1;
  for (const std::int64_t size : shape) {
    product *= size;
  }
  return product;
}

Checkpoint::Checkpoint(std::vector<Part> parts) {
  for (Part& part : parts) {
    for (TensorInfo& tensor : part.tensors) {
      tensor.file = files_.size();
    }
    tensors_.insert(tensors_.end(), std::make_move_iterator(part.tensors.begin()),
                    std::make_move_iterator(part.tensors.end()));
    metadata_.merge(part.metadata);
    files_.push_back(std::move(part.file));
  }
  by_name_.reserve(tensors_.size());
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    const auto [other, is_new] = by_name_.emplace(tensors_[i].name, i);
    if (!is_new) {
      throw_bad_input("tensor {} stands both in {} and in {}", printable(tensors_[i].name),
                      printable(file_of(tensors_[other->second]).path().string(), 0),
                      printable(file_of(tensors_[i]).path().string(), 0));
    }
  }
}

const TensorInfo* Checkpoint::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &tensors_[found->second];
}

const TensorInfo& Checkpoint::at(std::string_view name) const {
  const TensorInfo* tensor = find(name);
  if (tensor == nullptr) {
    throw_bad_input("{}: tensor {} is missing",
                    printable(files_.front().path().parent_path().string(), 0), printable(name));
  }
  return *tensor;
}

void Checkpoint::read(const TensorInfo& tensor, std::span<std::byte> out) const {
  if (out.size() != tensor.bytes()) {
    throw_usage("tensor {} has {} bytes, asked for {}", printable(tensor.name), tensor.bytes(),
                out.size());
  }
  if (tensor.contiguous()) {
    file_of(tensor).read_at(tensor.begin, out);
    return;
  }
  std::vector<std::byte> stored(tensor.end - tensor.begin);
  file_of(tensor).read_at(tensor.begin, stored);
  gather(tensor, stored, 0, 0, out);
}

}  // namespace regroup
