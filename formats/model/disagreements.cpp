#include <algorithm>
#include <iterator>

#include <fmt/format.h>

#include "formats/base/printable.h"
#include "formats/families/family.h"
#include "formats/families/loader_code.h"
#include "formats/model/model_directory.h"
#include "formats/model/model_summary.h"
#include "formats/model/weight_index.h"
#include "formats/spec/tensor_names.h"

namespace regroup {
namespace {

// Kv heads are compared apart, and a base model may lack its head.
void add_tensor_faults(const ModelSpec& spec, const Checkpoint& checkpoint,
                       std::vector<std::string>& found) {
  constexpr std::size_t kShown = 8;
  ModelSpec stored = with_stored_heads(spec, checkpoint);
  stored = missing_head(stored, checkpoint).empty() ? stored : without_head(std::move(stored));
  std::vector<std::string> faults = tensor_faults(stored, checkpoint);
  if (faults.size() > kShown) {
    const std::size_t more = faults.size() - kShown;
    faults.resize(kShown);
    faults.push_back(fmt::format("{} more tensors do not fit the config", more));
  }
  std::move(faults.begin(), faults.end(), std::back_inserter(found));
}

}  // namespace

std::vector<std::string> disagreements_in(const ModelSpec& spec, const Checkpoint& checkpoint,
                                          const Json& config) {
  std::vector<std::string> found = kv_head_faults(spec, checkpoint);
  add_tensor_faults(spec, checkpoint, found);
  found.insert(found.end(), spec.contradictions.begin(), spec.contradictions.end());
  std::vector<std::string> misread = misread_by_loaders(spec, config);
  std::move(misread.begin(), misread.end(), std::back_inserter(found));
  return found;
}

std::vector<std::string> disagreements_of_index(const std::filesystem::path& path,
                                                const Checkpoint& checkpoint) {
  const auto index = index_of_checkpoint(path);
  if (!index) {
    return {};
  }
  const std::string where = printable(index->filename().string());
  std::vector<std::string> found;
  std::uint64_t stored = 0;
  for (const TensorInfo& tensor : checkpoint.tensors()) {
    stored += tensor.bytes();
  }
  auto [said, absent] = listing_of_index(*index);
  if (said && *said != stored) {
    found.push_back(
        fmt::format("{}: total_size is {}, the tensors have {} bytes", where, *said, stored));
  }
  const std::size_t listed = absent.size();
  std::erase_if(absent, [&](const std::string& name) { return checkpoint.find(name) != nullptr; });
  if (!absent.empty() && absent.size() < listed) {  // all: they are called otherwise once opened
    found.push_back(fmt::format("{}: {} of the tensors that it lists are in no file, such as {}",
                                where, absent.size(), printable(absent.front())));
  }
  return found;
}

}  // namespace regroup
