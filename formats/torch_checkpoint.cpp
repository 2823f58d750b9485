#include "formats/torch_checkpoint.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <string_view>
#include <unordered_map>

#include "formats/error.h"
#include "formats/printable.h"
#include "formats/unpickler.h"
#include "formats/zip_archive.h"

namespace regroup {
namespace {

constexpr std::uint64_t kMaxPickleBytes = 8U << 20;

struct StorageRow {
  std::string_view name;
  DType dtype;
};

constexpr std::array<StorageRow, 10> kStorages{{{"FloatStorage", DType::kF32},
                                                {"DoubleStorage", DType::kF64},
                                                {"HalfStorage", DType::kF16},
                                                {"BFloat16Storage", DType::kBF16},
                                                {"LongStorage", DType::kI64},
                                                {"IntStorage", DType::kI32},
                                                {"ShortStorage", DType::kI16},
                                                {"CharStorage", DType::kI8},
                                                {"ByteStorage", DType::kU8},
                                                {"BoolStorage", DType::kBool}}};

std::optional<DType> dtype_of_storage(std::string_view name) {
  const auto row = std::find_if(kStorages.begin(), kStorages.end(),
                                [&](const StorageRow& storage) { return storage.name == name; });
  return row == kStorages.end() ? std::nullopt : std::optional(row->dtype);
}

// The archive's entries below its one folder, which is called after the file it was saved as.
class Archive {
 public:
  Archive(const File& file, std::string where) : where_(std::move(where)) {
    for (ZipEntry& entry : read_zip_directory(file)) {
      const std::size_t slash = entry.name.find('/');
      std::string folder = entry.name.substr(0, slash);
      if (slash == std::string::npos || (!entries_.empty() && folder != folder_)) {
        throw_bad_input(
            "{}: ZIP entry {} lies outside the archive's folder; not a file of torch.save", where_,
            printable(entry.name));
      }
      folder_ = std::move(folder);
      std::string name = entry.name.substr(slash + 1);
      entries_.emplace(std::move(name), std::move(entry));
    }
  }

  const ZipEntry& at(const std::string& name, const std::string& where) const {
    const auto found = entries_.find(name);
    if (found == entries_.end()) {
      throw_bad_input("{}: the archive has no entry {}; not a file of torch.save", where,
                      printable(name));
    }
    return found->second;
  }

  const ZipEntry* find(const std::string& name) const {
    const auto found = entries_.find(name);
    return found == entries_.end() ? nullptr : &found->second;
  }

 private:
  std::string where_;
  std::string folder_;
  std::unordered_map<std::string, ZipEntry> entries_;
};

std::uint64_t count_elements(const PickledTensor& tensor, const std::string& where) {
  std::uint64_t count = 1;
  for (const std::int64_t size : tensor.shape) {
    if (__builtin_mul_overflow(count, static_cast<std::uint64_t>(size), &count)) {
      throw_bad_input("{}: shape {} has too many elements", where, text_of(tensor.shape));
    }
  }
  return count;
}

// Elements that a view reaches over, from its first to its last; 0 for an empty one.
std::uint64_t reach_of(const PickledTensor& tensor, const std::string& where) {
  constexpr auto kMost = std::numeric_limits<std::uint64_t>::max();  // one more would wrap to none
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

TensorInfo place_tensor(const std::string& name, const PickledTensor& pickled,
                        const Archive& archive, const std::string& file) {
  const std::string where = fmt::format("{}: tensor {}", file, printable(name));
  const auto dtype = dtype_of_storage(pickled.storage_type);
  if (!dtype) {
    throw_bad_input("{}: numbers of type {} are not known", where, printable(pickled.storage_type));
  }
  const ZipEntry& entry = archive.at("data/" + std::string(pickled.storage_key), where);
  const std::uint64_t size = bits_of(*dtype) / 8;
  const auto held = static_cast<std::uint64_t>(pickled.storage_elements);
  if (held > entry.size / size) {
    throw_bad_input("{}: its storage has {} elements, the pickle says {}", where, entry.size / size,
                    held);
  }
  const std::uint64_t elements = count_elements(pickled, where);
  const std::uint64_t reach = reach_of(pickled, where);
  const auto offset = static_cast<std::uint64_t>(pickled.offset);
  if (offset > held || reach > held - offset) {
    throw_bad_input("{}: {} elements from element {} of a storage of {}", where, reach, offset,
                    held);
  }
  TensorInfo tensor{name, *dtype, pickled.shape, 0, entry.begin + offset * size, 0, {}};
  tensor.end = tensor.begin + reach * size;
  // A view that repeats elements could claim any size; no weight is stored like that.
  if (elements > reach) {
    throw_bad_input("{}: strides {} repeat elements", where, text_of(pickled.strides));
  }
  if (reach > 0 && !is_row_major(pickled)) {
    tensor.strides = pickled.strides;
  }
  return tensor;
}

void check_byte_order(const File& file, const Archive& archive, const std::string& where) {
  const ZipEntry* entry = archive.find("byteorder");
  if (entry != nullptr && read_zip_entry(file, *entry, 64) != "little") {
    throw_bad_input("{}: its numbers are not little-endian", where);
  }
}

}  // namespace

Checkpoint::Part open_torch_checkpoint(const std::filesystem::path& path) {
  Checkpoint::Part part{File::open(path), {}, {}};
  const std::string where = printable(path.string(), 0);
  const Archive archive(part.file, where);
  check_byte_order(part.file, archive, where);
  const std::string pickle =
      read_zip_entry(part.file, archive.at("data.pkl", where), kMaxPickleBytes);
  for (const auto& [name, tensor] : read_state_dict(pickle, where)) {
    part.tensors.push_back(place_tensor(std::string(name), tensor, archive, where));
  }
  std::stable_sort(part.tensors.begin(), part.tensors.end(),
                   [](const TensorInfo& a, const TensorInfo& b) { return a.begin < b.begin; });
  return part;
}

}  // namespace regroup
