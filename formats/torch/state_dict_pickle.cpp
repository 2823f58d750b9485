#include "formats/torch/state_dict_pickle.h"

#include <array>
#include <cstring>
#include <limits>

#include "formats/base/error.h"
#include "formats/base/printable.h"
#include "formats/torch/torch_storage.h"

namespace regroup {
namespace {

template <typename T>
std::string little_endian(T number) {
  std::array<char, sizeof(T)> bytes{};
  std::memcpy(bytes.data(), &number, sizeof(T));
  return {bytes.data(), bytes.size()};
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
  const TorchNumbers numbers = torch_numbers_of(tensor.dtype);
  const bool names_dtype = !numbers.dtype.empty();
  if (!names_dtype && numbers.storage_class.empty()) {
    throw_usage("tensor {}: torch files hold no {}", printable(tensor.name), name_of(tensor.dtype));
  }
  return global("torch._utils", names_dtype ? "_rebuild_tensor_v3" : "_rebuild_tensor_v2") + "(" +
         storage_of(tensor, numbers, key) + integer(0) + tuple_of(tensor.shape) +
         tuple_of(row_major_strides(tensor.shape)) + "\x89" + empty_dict() +
         (names_dtype ? global("torch", numbers.dtype) : "") + "tR";
}

}  // namespace

std::string pickle_state_dict(std::span<const OutputTensor> tensors) {
  std::string pickle = "\x80\x02" + empty_dict() + "(";
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    pickle += text(tensors[i].name) + pickle_tensor(tensors[i], i);
  }
  return pickle + "u.";
}

}  // namespace regroup
