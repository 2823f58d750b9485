#include "formats/checkpoint.h"

#include <fmt/ranges.h>

#include <iterator>

#include "formats/error.h"
#include "formats/printable.h"

namespace regroup {

std::string text_of(const Shape& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

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
  file_of(tensor).read_at(tensor.begin, out);
}

}  // namespace regroup
