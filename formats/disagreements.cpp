#include "formats/disagreements.h"

#include <algorithm>
#include <set>
#include <span>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "formats/alibi.h"
#include "formats/model_directory.h"
#include "formats/model_parts.h"
#include "formats/printable.h"
#include "formats/tensor_comparison.h"
#include "formats/weight_index.h"

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

// "layer 3", "layers 0, 1, 2, 3 and 28 more".
std::string text_of_layers(const std::vector<std::size_t>& layers) {
  constexpr std::size_t kShown = 4;
  const auto shown = std::span(layers).first(std::min(layers.size(), kShown));
  return fmt::format(
      "layer{} {}{}", layers.size() == 1 ? "" : "s", fmt::join(shown, ", "),
      layers.size() > kShown ? fmt::format(" and {} more", layers.size() - kShown) : "");
}

// Slopes follow their heads, so that another order is to be expected where heads were reordered.
void compare_slopes(const ModelSpec& spec, AttentionRole role, std::vector<std::string>& found) {
  const std::vector<double> formula = alibi_slopes(spec.query_heads, spec.alibi.bias_max);
  const auto layers = alibi_slopes_per_layer(spec, role);
  std::vector<std::size_t> reordered, others;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    if (layers[i] != formula) {
      const bool same_slopes =
          std::is_permutation(layers[i].begin(), layers[i].end(), formula.begin(), formula.end());
      (same_slopes ? reordered : others).push_back(i);
    }
  }
  for (const auto& [which, what] : {std::pair{&reordered, "the formula's in another order"},
                                    std::pair{&others, "not the formula's"}}) {
    if (!which->empty()) {
      found.push_back(
          fmt::format("{} {}: the recorded ALiBi slopes are {}, which stock loaders do "
                      "not know",
                      name_of(role), text_of_layers(*which), what));
    }
  }
}

}  // namespace

std::vector<std::string> disagreements_in(const ModelSpec& spec, const Checkpoint& checkpoint) {
  std::vector<std::string> found;
  for (const AttentionRole role : spec.roles()) {
    compare_heads(spec, checkpoint, role, found);
    if (spec.positions == PositionKind::kAlibi && role != AttentionRole::kCross) {
      compare_slopes(spec, role, found);
    }
  }
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
      found.push_back(fmt::format("{} differs from {}, which is read in its place",
                                  printable(tensor.name), printable(embedding->name)));
    }
  }
  return found;
}

}  // namespace regroup
