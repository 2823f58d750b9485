#include "formats/inspect/checkpoint_difference.h"

#include <fmt/format.h>

#include "formats/base/callback.h"
#include "formats/base/printable.h"
#include "formats/directory/meta_checkpoint.h"
#include "formats/directory/model_directory.h"
#include "formats/gguf/gguf_split.h"

namespace regroup {
namespace {

namespace fs = std::filesystem;

// Returns nothing if the two are the same.
std::optional<TensorDifference> compare(const Checkpoint& before, const TensorInfo& a,
                                        const Checkpoint& after, const TensorInfo& b,
                                        const std::function<void(std::uint64_t)>& progress) {
  TensorDifference difference{a.name, &a, &b, std::nullopt};
  if (a.shape == b.shape) {
    difference.values = compare_tensors(TensorReader(before, a), TensorReader(after, b), progress);
    if (difference.values->same_bytes) {
      return std::nullopt;
    }
  } else {
    call_if_given(progress, a.bytes());
  }
  return difference;
}

Json json_of(const GgufArray& array) {
  if (const auto texts = array.strings()) {
    return *texts;
  }
  if (const auto whole = array.integers()) {
    return *whole;
  }
  if (const auto numbers = array.numbers()) {
    return *numbers;
  }
  return fmt::format("{} of {}", array.size(), name_of(array.type()));
}

Json json_of(const GgufMetadata& metadata, const GgufMetadata::Entry& entry) {
  switch (entry.type) {
    case GgufType::kString: return std::string(*metadata.text(entry.key));
    case GgufType::kBool: return *metadata.flag(entry.key);
    case GgufType::kArray: return json_of(*metadata.array(entry.key));
    default: return *metadata.number(entry.key);
  }
}

}  // namespace

std::vector<TensorDifference> differences_between(
    const Checkpoint& before, const Checkpoint& after,
    const std::function<bool(const std::string&)>& chosen, const ComparisonProgress& progress) {
  std::vector<TensorDifference> found;
  std::uint64_t done = 0;
  const auto skipped = [&](const TensorInfo& tensor) { return chosen && !chosen(tensor.name); };
  for (const TensorInfo& tensor : before.tensors()) {
    const auto count = [&](std::uint64_t bytes) {
      call_if_given(progress, done += bytes, tensor.name);
    };
    const TensorInfo* other = after.find(tensor.name);
    if (skipped(tensor)) {
      continue;
    }
    if (other == nullptr) {
      found.push_back({tensor.name, &tensor, nullptr, std::nullopt});
      count(tensor.bytes());
    } else if (auto difference = compare(before, tensor, after, *other, count)) {
      found.push_back(std::move(*difference));
    }
  }
  for (const TensorInfo& tensor : after.tensors()) {
    if (!skipped(tensor) && before.find(tensor.name) == nullptr) {
      found.push_back({tensor.name, nullptr, &tensor, std::nullopt});
    }
  }
  return found;
}

Json json_of(const GgufMetadata& metadata) {
  Json object = Json::object();
  for (const GgufMetadata::Entry& entry : metadata.entries()) {
    object[entry.key] = json_of(metadata, entry);
  }
  return object;
}

Json settings_of(const fs::path& given) {
  const fs::path path = resolve_weights_path(given);
  if (is_gguf_file(path)) {
    return json_of(gguf_metadata_of(path));
  }
  const fs::path config = path / (is_meta_directory(path) ? kMetaParamsFile : "config.json");
  std::error_code fault;
  if (!fs::is_directory(path, fault) || !path_exists(config)) {
    return Json::object();
  }
  return parse_json_object(read_text(config, kMaxConfigBytes), printable(config.string(), 0));
}

}  // namespace regroup
