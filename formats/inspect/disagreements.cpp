#include "formats/inspect/disagreements.h"

#include <algorithm>
#include <iterator>
#include <set>

#include <fmt/format.h>

#include "formats/base/printable.h"
#include "formats/directory/model_directory.h"
#include "formats/directory/weight_index.h"
#include "formats/inspect/model_parts.h"
#include "formats/inspect/tensor_comparison.h"
#include "formats/loaders/loader_agreement.h"

namespace regroup {
namespace {

void compare_heads(const ModelSpec& spec, const Checkpoint& checkpoint, AttentionRole role,
                   std::vector<std::string>& found) {
  const std::vector<std::int64_t> stored = kv_heads_from_shapes(spec, checkpoint, role);
  const std::vector<std::int64_t>& said = spec.kv_heads_of(role);
  const std::string of_role = spec.has_encoder() ? fmt::format("{} ", name_of(role)) : "";
  for (std::size_t i = 0; i < stored.size(); ++i) {
    if (stored[i] != said[i]) {
      found.push_back(fmt::format("{}layer {}: the config says {} kv heads, the tensors hold {}",
                                  of_role, i, said[i], stored[i]));
    }
  }
}

}  // namespace

std::vector<std::string> disagreements_in(const ModelSpec& spec, const Checkpoint& checkpoint,
                                          const Json& config) {
  std::vector<std::string> found;
  for (const AttentionRole role : spec.roles()) {
    compare_heads(spec, checkpoint, role, found);
  }
  std::vector<std::string> misread = misread_by_loaders(spec, config);
  std::move(misread.begin(), misread.end(), std::back_inserter(found));
  return found;
}

std::optional<std::string> disagreement_of_index(const std::filesystem::path& path,
                                                 const Checkpoint& checkpoint) {
  const auto index = index_of_checkpoint(path);
  const auto said = index ? total_size_of_index(*index) : std::nullopt;
  std::uint64_t stored = 0;
  for (const TensorInfo& tensor : checkpoint.tensors()) {
    stored += tensor.bytes();
  }
  if (!said || *said == stored) {
    return std::nullopt;
  }
  return fmt::format("{}: total_size is {}, the tensors have {} bytes",
                     printable(index->filename().string()), *said, stored);
}

std::vector<std::string> disagreements_of_ties(const ModelSpec& spec,
                                               const Checkpoint& checkpoint) {
  const TensorInfo* embedding = checkpoint.find(spec.token_embedding);
  if (embedding == nullptr) {
    return {};
  }
  std::set<std::string_view> read;
  for (const auto& [name, part] : parts_of(spec)) {
    read.insert(name);
  }
  std::vector<std::string> found;
  for (const TensorInfo& tensor : checkpoint.tensors()) {
    const bool beside = !read.contains(tensor.name) && tensor.shape == embedding->shape;
    if (beside && !compare_tensors({checkpoint, tensor}, {checkpoint, *embedding}).same_values()) {
      found.push_back(fmt::format("{} differs from {}, which is used instead",
                                  printable(tensor.name), printable(embedding->name)));
    }
  }
  return found;
}

}  // namespace regroup
