#include "formats/torch/legacy_torch_checkpoint.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <unordered_map>
#include <unordered_set>

#include "formats/base/error.h"
#include "formats/base/printable.h"
#include "formats/torch/pickled_state_dict.h"
#include "formats/torch/torch_storage.h"
#include "formats/torch/unpickler.h"

namespace regroup {
namespace {

using Kind = Unpickler::Kind;

// A limit for all pickles together. The data begins after them.
constexpr std::uint64_t kMaxLegacyPickleBytes = 8U << 20;
constexpr std::int64_t kProtocolVersion = 1001;

std::string pickled_bytes(const File& file) {
  std::string bytes(std::min(file.size(), kMaxLegacyPickleBytes), '\0');
  file.read_at(0, std::as_writable_bytes(std::span(bytes)));
  return bytes;
}

// Reads consecutive pickles.
class PickleSequence {
 public:
  PickleSequence(std::string_view bytes, std::string where, std::size_t at)
      : bytes_(bytes), where_(std::move(where)), at_(at) {}

  /// Loads the next pickle. `use` receives the unpickler and the resulting value.
  template <typename Use>
  auto next(Use use) {
    Unpickler unpickler(bytes_, where_, at_);
    const Unpickler::Value& value = unpickler.value(unpickler.load());
    at_ = unpickler.position();
    return use(unpickler, value);
  }

  std::size_t position() const { return at_; }

 private:
  std::string_view bytes_;
  std::string where_;
  std::size_t at_ = 0;
};

void check_system(PickleSequence& pickles, const std::string& where) {
  pickles.next([&](const Unpickler&, const Unpickler::Value& version) {
    if (version.kind != Kind::kInteger || version.number != kProtocolVersion) {
      throw_bad_input("{}: not of torch's protocol version {}", where, kProtocolVersion);
    }
  });
  pickles.next([&](const Unpickler& unpickler, const Unpickler::Value& system) {
    for (std::size_t i = 0; system.kind == Kind::kDict && i < system.items.size(); i += 2) {
      const Unpickler::Value& item = unpickler.value(system.items[i + 1]);
      if (unpickler.value(system.items[i]).text == "little_endian" && item.kind == Kind::kBool &&
          item.number == 1) {
        return;
      }
    }
    throw_bad_input("{}: its numbers are not little-endian", where);
  });
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

std::vector<std::string> storage_keys(PickleSequence& pickles, const std::string& where) {
  return pickles.next([&](const Unpickler& unpickler, const Unpickler::Value& list) {
    std::vector<std::string> keys;
    std::unordered_set<std::string_view> seen;
    const auto is_new_key = [&](const Unpickler::Value& key) {
      return key.kind == Kind::kText && seen.insert(key.text).second;
    };
    for (const Unpickler::Ref item : list.items) {
      if (list.kind != Kind::kSequence || !is_new_key(unpickler.value(item))) {
        throw_bad_input("{}: the list of storages is not a list of distinct keys", where);
      }
      keys.emplace_back(unpickler.value(item).text);
    }
    return keys;
  });
}

using StorageMap = std::unordered_map<std::string, StorageBytes>;

// The storages are consecutive and fill the rest of the file. Each follows its element count.
StorageMap locate_storages(const File& file, std::uint64_t at, const std::vector<std::string>& keys,
                           const ClaimedStorages& claimed, const std::string& where) {
  constexpr std::uint64_t kCountBytes = 8;
  StorageMap storages;
  for (const std::string& key : keys) {
    const auto found = claimed.find(key);
    const std::uint64_t size = found == claimed.end() ? 0 : torch_element_bytes(found->second.type);
    if (size == 0) {
      throw_bad_input("{}: storage {} is of {}, whose size is unknown", where, printable(key),
                      found == claimed.end() ? "no type" : printable(found->second.type));
    }
    if (file.size() - at < kCountBytes) {
      throw_bad_input("{}: ends before storage {} (truncated?)", where, printable(key));
    }
    std::array<std::byte, kCountBytes> stored{};
    file.read_at(at, stored);
    std::uint64_t count = 0;
    std::memcpy(&count, stored.data(), kCountBytes);
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

TensorInfo place_tensor(const std::string& name, const PickledTensor& pickled,
                        const StorageMap& storages, const std::string& file) {
  const std::string where = fmt::format("{}: tensor {}", file, printable(name));
  const auto found = storages.find(std::string(pickled.storage_key));
  if (found == storages.end()) {
    throw_bad_input("{}: its storage {} is not in the file", where, printable(pickled.storage_key));
  }
  return place_torch_tensor(name, pickled, found->second, where);
}

}  // namespace

Checkpoint::Part open_legacy_torch_checkpoint(const std::filesystem::path& path) {
  Checkpoint::Part part{File::open(path), {}, {}};
  const std::string where = printable(path.string(), 0);
  const std::string bytes = pickled_bytes(part.file);
  if (!std::string_view(bytes).starts_with(kLegacyTorchMagic)) {
    throw_bad_input("{}: not a torch file as written before torch 1.6", where);
  }
  PickleSequence pickles(bytes, where, kLegacyTorchMagic.size());
  check_system(pickles, where);
  ClaimedStorages claimed;
  std::vector<std::pair<std::string, PickledTensor>> tensors;  // texts are views of `bytes`
  pickles.next([&](const Unpickler& unpickler, const Unpickler::Value& root) {
    claimed = storages_named_in(unpickler, where);
    for (const auto& [name, tensor] : tensors_of(unpickler, root, where)) {
      tensors.emplace_back(name, tensor);
    }
  });
  const std::vector<std::string> keys = storage_keys(pickles, where);
  const StorageMap storages = locate_storages(part.file, pickles.position(), keys, claimed, where);
  for (const auto& [name, tensor] : tensors) {
    part.tensors.push_back(place_tensor(name, tensor, storages, where));
  }
  std::stable_sort(part.tensors.begin(), part.tensors.end(),
                   [](const TensorInfo& a, const TensorInfo& b) { return a.begin < b.begin; });
  return part;
}

}  // namespace regroup
