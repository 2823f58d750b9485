#include "formats/torch/torch_storage.h"

#include <algorithm>
#include <array>
#include <limits>

#include "formats/base/error.h"
#include "formats/base/printable.h"

namespace regroup {
namespace {

struct NumbersRow {
  DType dtype;
  TorchNumbers names;
};

constexpr std::array<NumbersRow, 19> kNumbers{{{DType::kF32, {"FloatStorage", ""}},
                                               {DType::kF64, {"DoubleStorage", ""}},
                                               {DType::kF16, {"HalfStorage", ""}},
                                               {DType::kBF16, {"BFloat16Storage", ""}},
                                               {DType::kI64, {"LongStorage", ""}},
                                               {DType::kI32, {"IntStorage", ""}},
                                               {DType::kI16, {"ShortStorage", ""}},
                                               {DType::kI8, {"CharStorage", ""}},
                                               {DType::kU8, {"ByteStorage", ""}},
                                               {DType::kBool, {"BoolStorage", ""}},
                                               {DType::kC64, {"ComplexFloatStorage", ""}},
                                               {DType::kU16, {"", "uint16"}},
                                               {DType::kU32, {"", "uint32"}},
                                               {DType::kU64, {"", "uint64"}},
                                               {DType::kF8E4M3, {"", "float8_e4m3fn"}},
                                               {DType::kF8E5M2, {"", "float8_e5m2"}},
                                               {DType::kF8E4M3Fnuz, {"", "float8_e4m3fnuz"}},
                                               {DType::kF8E5M2Fnuz, {"", "float8_e5m2fnuz"}},
                                               {DType::kF8E8M0, {"", "float8_e8m0fnu"}}}};

DType dtype_of(const PickledTensor& pickled, const std::string& where) {
  const auto row = std::find_if(kNumbers.begin(), kNumbers.end(), [&](const NumbersRow& numbers) {
    return pickled.dtype.empty() ? numbers.names.storage_class == pickled.storage_type
                                 : numbers.names.dtype == pickled.dtype;
  });
  if (row == kNumbers.end()) {
    throw_bad_input("{}: element type {} is unknown", where,
                    printable(pickled.dtype.empty() ? pickled.storage_type : pickled.dtype));
  }
  return row->dtype;
}

std::uint64_t count_elements(const PickledTensor& tensor, const std::string& where) {
  std::uint64_t count = 1;
  for (const std::int64_t size : tensor.shape) {
    if (__builtin_mul_overflow(count, static_cast<std::uint64_t>(size), &count)) {
      throw_bad_input("{}: shape {} has too many elements", where, text_of(tensor.shape));
    }
  }
  return count;
}

// The number of elements from a view's first to its last; 0 for an empty view.
std::uint64_t reach_of(const PickledTensor& tensor, const std::string& where) {
  constexpr auto kMost = std::numeric_limits<std::uint64_t>::max();  // adding 1 would overflow
  std::uint64_t last = 0;
  for (std::size_t i = 0; i < tensor.shape.size(); ++i) {
    if (tensor.shape[i] == 0) {
      return 0;
    }
    std::uint64_t span = 0;
    if (__builtin_mul_overflow(static_cast<std::uint64_t>(tensor.shape[i] - 1),
                               static_cast<std::uint64_t>(tensor.strides[i]), &span) ||
        __builtin_add_overflow(last, span, &last) || last == kMost) {
      throw_bad_input("{}: shape {} with strides {} overflows", where, text_of(tensor.shape),
                      text_of(tensor.strides));
    }
  }
  return last + 1;
}

// Dimensions of size 1 may have any stride.
bool is_row_major(const PickledTensor& tensor) {
  std::int64_t expected = 1;
  for (std::size_t i = tensor.shape.size(); i-- > 0;) {
    if (tensor.shape[i] != 1 && tensor.strides[i] != expected) {
      return false;
    }
    expected *= tensor.shape[i];
  }
  return true;
}

}  // namespace

TorchNumbers torch_numbers_of(DType dtype) {
  const auto row = std::find_if(kNumbers.begin(), kNumbers.end(),
                                [&](const NumbersRow& numbers) { return numbers.dtype == dtype; });
  return row == kNumbers.end() ? TorchNumbers{} : row->names;
}

std::uint64_t torch_element_bytes(std::string_view storage_class) {
  if (storage_class == "UntypedStorage") {
    return 1;
  }
  const auto row = std::find_if(kNumbers.begin(), kNumbers.end(), [&](const NumbersRow& numbers) {
    return !storage_class.empty() && numbers.names.storage_class == storage_class;
  });
  return row == kNumbers.end() ? 0 : bits_of(row->dtype) / 8;
}

TensorInfo place_torch_tensor(const std::string& name, const PickledTensor& pickled,
                              const StorageBytes& storage, const std::string& where) {
  const DType dtype = dtype_of(pickled, where);
  const std::uint64_t size = bits_of(dtype) / 8;
  const auto claimed = static_cast<std::uint64_t>(pickled.storage_elements);
  // The pickle counts an untyped storage in bytes.
  const std::uint64_t held = pickled.dtype.empty() ? claimed : claimed / size;
  if (held > storage.size / size) {
    throw_bad_input("{}: its storage has {} elements, the pickle says {}", where,
                    storage.size / size, held);
  }
  const std::uint64_t elements = count_elements(pickled, where);
  const std::uint64_t reach = reach_of(pickled, where);
  const auto offset = static_cast<std::uint64_t>(pickled.offset);
  if (offset > held || reach > held - offset) {
    throw_bad_input("{}: {} elements from element {} of a storage of {}", where, reach, offset,
                    held);
  }
  TensorInfo tensor{name, dtype, pickled.shape, 0, storage.begin + offset * size, 0, {}};
  tensor.end = tensor.begin + reach * size;
  // A view that repeats elements could claim any size. No weight is stored as one.
  if (elements > reach) {
    throw_bad_input("{}: strides {} repeat elements", where, text_of(pickled.strides));
  }
  if (reach > 0 && !is_row_major(pickled)) {
    tensor.strides = pickled.strides;
  }
  return tensor;
}

}  // namespace regroup
