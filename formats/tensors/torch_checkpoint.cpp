#include "formats/tensors/torch_checkpoint.h"

#include <algorithm>
#include <array>
#include <limits>
#include <unordered_map>
#include <unordered_set>

#include "formats/base/error.h"
#include "formats/base/printable.h"
#include "formats/tensors/unpickler.h"
#include "formats/tensors/zip_archive.h"

namespace regroup {

namespace {

constexpr std::array<TorchNumbers, 19> kNumbers{{
    {DType::kF32, "FloatStorage"},
    {DType::kF64, "DoubleStorage"},
    {DType::kF16, "HalfStorage"},
    {DType::kBF16, "BFloat16Storage"},
    {DType::kI64, "LongStorage"},
    {DType::kI32, "IntStorage"},
    {DType::kI16, "ShortStorage"},
    {DType::kI8, "CharStorage"},
    {DType::kU8, "ByteStorage"},
    {DType::kBool, "BoolStorage"},
    {DType::kC64, "ComplexFloatStorage"},
    {DType::kU16, "", "uint16"},
    {DType::kU32, "", "uint32"},
    {DType::kU64, "", "uint64"},
    {DType::kF8E4M3, "", "float8_e4m3fn"},
    {DType::kF8E5M2, "", "float8_e5m2"},
    {DType::kF8E4M3Fnuz, "", "float8_e4m3fnuz"},
    {DType::kF8E5M2Fnuz, "", "float8_e5m2fnuz"},
    {DType::kF8E8M0, "", "float8_e8m0fnu"},
}};

// The row that has `name`, as storage class or as dtype; null if there is none.
const TorchNumbers* numbers_named(std::string_view name, std::string_view TorchNumbers::* column) {
  const auto* const row = std::ranges::find(kNumbers, name, column);
  return row == kNumbers.end() ? nullptr : row;
}

DType dtype_of(const PickledTensor& pickled, const std::string& where) {
  const bool named = !pickled.dtype.empty();
  const std::string_view name = named ? pickled.dtype : pickled.storage_type;
  const TorchNumbers* numbers =
      numbers_named(name, named ? &TorchNumbers::name : &TorchNumbers::storage_class);
  if (numbers == nullptr) {
    throw_bad_input("{}: element type {} is unknown", where, printable(name));
  }
  return numbers->dtype;
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

// The bytes of a file that hold one storage.
struct StorageBytes {
  std::uint64_t begin = 0;
  std::uint64_t size = 0;
};

// Converts a pickled tensor. `where` is file and tensor. Throws kBadInput for an unknown element
// type, a storage shorter than the pickle says, a view that exceeds its storage, and strides that
// repeat elements.
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

// Adds the tensors of a pickle in the order of their bytes. `storage_of` finds the bytes of a
// storage by its key, and throws naming `where` if there are none.
template <typename StorageOf>
void place_tensors(Checkpoint::Part& part, const NamedPickledTensors& tensors,
                   const StorageOf& storage_of) {
  for (const auto& [name, tensor] : tensors) {
    const std::string where = fmt::format("{}: tensor {}", part.file.where(), printable(name));
    const StorageBytes storage = storage_of(std::string(tensor.storage_key), where);
    part.tensors.push_back(place_torch_tensor(std::string(name), tensor, storage, where));
  }
  std::ranges::stable_sort(part.tensors, {}, &TensorInfo::begin);
}

}  // namespace

const TorchNumbers* torch_numbers_of(DType dtype) {
  const auto* const row = std::ranges::find(kNumbers, dtype, &TorchNumbers::dtype);
  return row == kNumbers.end() ? nullptr : row;
}

namespace {

using Kind = Unpickler::Kind;

// A limit for all pickles together. The data begins after them.
constexpr std::uint64_t kMaxLegacyPickleBytes = 8U << 20;
constexpr std::int64_t kProtocolVersion = 1001;

bool is_little_endian(const Unpickler& pickles, const Unpickler::Value& system) {
  for (std::size_t i = 0; system.kind == Kind::kDict && i < system.items.size(); i += 2) {
    const Unpickler::Value& item = pickles.value(system.items[i + 1]);
    if (pickles.value(system.items[i]).text == "little_endian" && item.kind == Kind::kBool &&
        item.number == 1) {
      return true;
    }
  }
  return false;
}

// The first two pickles: the version of the protocol, and a dict of facts about the machine.
void check_system(Unpickler& pickles, const std::string& where) {
  const Unpickler::Value& version = pickles.value(pickles.load());
  if (version.kind != Kind::kInteger || version.number != kProtocolVersion) {
    throw_bad_input("{}: not of torch's protocol version {}", where, kProtocolVersion);
  }
  if (!is_little_endian(pickles, pickles.value(pickles.load()))) {
    throw_bad_input("{}: its numbers are not little-endian", where);
  }
}

// Bytes of one element of a storage class, 1 for UntypedStorage; 0 for an unknown one.
std::uint64_t element_bytes(std::string_view storage_class) {
  if (storage_class == "UntypedStorage") {
    return 1;
  }
  const TorchNumbers* numbers = numbers_named(storage_class, &TorchNumbers::storage_class);
  return numbers == nullptr ? 0 : bits_of(numbers->dtype) / 8;
}

// A storage as the pickle describes it. All mentions of it must agree.
struct ClaimedStorage {
  std::string type;
  std::uint64_t elements = 0;
};

using ClaimedStorages = std::unordered_map<std::string, ClaimedStorage>;

ClaimedStorages storages_named_in(const Unpickler& unpickler, const std::string& where) {
  ClaimedStorages storages;
  for (const PickledTensor& tensor : unpickler.tensors()) {
    const ClaimedStorage claimed{std::string(tensor.storage_type),
                                 static_cast<std::uint64_t>(tensor.storage_elements)};
    const auto [known, is_new] = storages.emplace(tensor.storage_key, claimed);
    if (!is_new &&
        (known->second.type != claimed.type || known->second.elements != claimed.elements)) {
      throw_bad_input("{}: storage {} is {} elements of {} and {} of {}", where,
                      printable(tensor.storage_key), known->second.elements,
                      printable(known->second.type), claimed.elements, printable(claimed.type));
    }
  }
  return storages;
}

// The last pickle.
std::vector<std::string> storage_keys(Unpickler& pickles, const std::string& where) {
  const Unpickler::Value& list = pickles.value(pickles.load());
  std::vector<std::string> keys;
  std::unordered_set<std::string_view> seen;
  for (const Unpickler::Ref item : list.items) {
    const Unpickler::Value& key = pickles.value(item);
    if (list.kind != Kind::kSequence || key.kind != Kind::kText || !seen.insert(key.text).second) {
      throw_bad_input("{}: the list of storages is not a list of distinct keys", where);
    }
    keys.emplace_back(key.text);
  }
  return keys;
}

using StorageMap = std::unordered_map<std::string, StorageBytes>;

// The storages are consecutive and fill the rest of the file. Each follows its element count.
StorageMap locate_storages(const File& file, std::uint64_t at, const std::vector<std::string>& keys,
                           const ClaimedStorages& claimed, const std::string& where) {
  constexpr std::uint64_t kCountBytes = 8;
  StorageMap storages;
  for (const std::string& key : keys) {
    const auto found = claimed.find(key);
    const std::uint64_t size = found == claimed.end() ? 0 : element_bytes(found->second.type);
    if (size == 0) {
      throw_bad_input("{}: storage {} is of {}, whose size is unknown", where, printable(key),
                      found == claimed.end() ? "no type" : printable(found->second.type));
    }
    if (file.size() - at < kCountBytes) {
      throw_bad_input("{}: ends before storage {} (truncated?)", where, printable(key));
    }
    const auto count = read_number<std::uint64_t>(file, at);
    at += kCountBytes;
    if (count != found->second.elements) {
      throw_bad_input("{}: storage {} has {} elements, the pickle says {}", where, printable(key),
                      count, found->second.elements);
    }
    if (count > (file.size() - at) / size) {
      throw_bad_input("{}: storage {} of {} elements exceeds the file (truncated?)", where,
                      printable(key), count);
    }
    storages.emplace(key, StorageBytes{at, count * size});
    at += count * size;
  }
  if (at != file.size()) {
    throw_bad_input("{}: {} bytes after the last storage", where, file.size() - at);
  }
  return storages;
}

}  // namespace

Checkpoint::Part open_legacy_torch_checkpoint(const std::filesystem::path& path) {
  Checkpoint::Part part{File::open(path), {}, {}};
  const std::string where = printable_path(path);
  const std::string bytes = read_start(part.file, kMaxLegacyPickleBytes);
  if (!std::string_view(bytes).starts_with(kLegacyTorchMagic)) {
    throw_bad_input("{}: not a torch file as written before torch 1.6", where);
  }
  Unpickler pickles(bytes, where, kLegacyTorchMagic.size());
  check_system(pickles, where);
  const Unpickler::Value& root = pickles.value(pickles.load());
  const ClaimedStorages claimed = storages_named_in(pickles, where);
  const NamedPickledTensors tensors = tensors_of(pickles, root, where);  // texts: views of `bytes`
  const std::vector<std::string> keys = storage_keys(pickles, where);
  const StorageMap storages = locate_storages(part.file, pickles.position(), keys, claimed, where);
  place_tensors(part, tensors, [&](const std::string& key, const std::string& tensor) {
    const auto found = storages.find(key);
    if (found == storages.end()) {
      throw_bad_input("{}: its storage {} is not in the file", tensor, printable(key));
    }
    return found->second;
  });
  return part;
}

namespace {

constexpr std::uint64_t kMaxPickleBytes = 8U << 20;

// By name, without the folder.
using Archive = std::unordered_map<std::string, ZipEntry>;

// The archive's entries, all in one folder that has the name of the saved file.
Archive entries_of(const File& file, const std::string& where) {
  Archive entries;
  std::string folder;
  for (ZipEntry& entry : read_zip_directory(file)) {
    const std::size_t slash = entry.name.find('/');
    const std::string before = std::exchange(folder, entry.name.substr(0, slash));
    if (slash == std::string::npos || (!entries.empty() && folder != before)) {
      throw_bad_input(
          "{}: ZIP entry {} lies outside the archive's folder; not a file of torch.save", where,
          printable(entry.name));
    }
    std::string name = entry.name.substr(slash + 1);
    entries.emplace(std::move(name), std::move(entry));
  }
  return entries;
}

const ZipEntry& entry_at(const Archive& archive, const std::string& name,
                         const std::string& where) {
  const auto found = archive.find(name);
  if (found == archive.end()) {
    throw_bad_input("{}: the archive has no entry {}; not a file of torch.save", where,
                    printable(name));
  }
  return found->second;
}

}  // namespace

Checkpoint::Part open_torch_checkpoint(const std::filesystem::path& path) {
  Checkpoint::Part part{File::open(path), {}, {}};
  const std::string where = printable_path(path);
  const Archive archive = entries_of(part.file, where);
  const auto byte_order = archive.find("byteorder");
  if (byte_order != archive.end() &&
      read_zip_entry(part.file, byte_order->second, 64) != "little") {
    throw_bad_input("{}: its data is not little-endian", where);
  }
  const std::string pickle =
      read_zip_entry(part.file, entry_at(archive, "data.pkl", where), kMaxPickleBytes);
  place_tensors(part, read_state_dict(pickle, where),
                [&](const std::string& key, const std::string& tensor) {
                  const ZipEntry& entry = entry_at(archive, "data/" + key, tensor);
                  return StorageBytes{entry.data_at, entry.size};
                });
  return part;
}

}  // namespace regroup
