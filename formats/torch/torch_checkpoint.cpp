#include "formats/torch/torch_checkpoint.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>

#include "formats/base/error.h"
#include "formats/base/printable.h"
#include "formats/torch/pickled_state_dict.h"
#include "formats/torch/torch_storage.h"
#include "formats/torch/zip_archive.h"

namespace regroup {
namespace {

constexpr std::uint64_t kMaxPickleBytes = 8U << 20;

// The archive's entries, all in one folder that has the name of the saved file.
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

TensorInfo place_tensor(const std::string& name, const PickledTensor& pickled,
                        const Archive& archive, const std::string& file) {
  const std::string where = fmt::format("{}: tensor {}", file, printable(name));
  const ZipEntry& entry = archive.at("data/" + std::string(pickled.storage_key), where);
  return place_torch_tensor(name, pickled, {entry.begin, entry.size}, where);
}

void check_byte_order(const File& file, const Archive& archive, const std::string& where) {
  const ZipEntry* entry = archive.find("byteorder");
  if (entry != nullptr && read_zip_entry(file, *entry, 64) != "little") {
    throw_bad_input("{}: its data is not little-endian", where);
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
