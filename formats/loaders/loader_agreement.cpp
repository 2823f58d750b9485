#include "formats/loaders/loader_agreement.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include <fmt/ranges.h>

#include "formats/families/family.h"
#include "formats/spec/alibi.h"

namespace regroup {
namespace {

// Loaders compute slopes in single precision. The slopes of two heads differ by more than this.
bool close(double a, double b) { return std::abs(a - b) <= 1e-6 * std::abs(b); }

// "layer 3", "layers 0, 1, 2, 3 and 28 more".
std::string text_of_layers(const std::vector<std::size_t>& layers) {
  constexpr std::size_t kShown = 4;
  const auto shown = std::span(layers).first(std::min(layers.size(), kShown));
  return fmt::format(
      "layer{} {}{}", layers.size() == 1 ? "" : "s", fmt::join(shown, ", "),
      layers.size() > kShown ? fmt::format(" and {} more", layers.size() - kShown) : "");
}

// Slopes move with their heads. Another order is therefore reported separately from other slopes.
void compare_slopes(const ModelSpec& spec, AttentionRole role, std::vector<std::string>& found) {
  const std::vector<double> formula = alibi_slopes(spec.query_heads, spec.alibi.bias_max);
  const auto layers = alibi_slopes_per_layer(spec, role);
  std::vector<std::size_t> reordered, others;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    if (!std::equal(layers[i].begin(), layers[i].end(), formula.begin(), formula.end(), close)) {
      const bool same_slopes = std::is_permutation(layers[i].begin(), layers[i].end(),
                                                   formula.begin(), formula.end(), close);
      (same_slopes ? reordered : others).push_back(i);
    }
  }
  for (const auto& [which, what] : {std::pair{&reordered, "the formula's in another order"},
                                    std::pair{&others, "not the formula's"}}) {
    if (!which->empty()) {
      found.push_back(
          fmt::format("{} {}: the recorded ALiBi slopes are {}, which stock loaders do not read",
                      name_of(role), text_of_layers(*which), what));
    }
  }
}

}  // namespace

std::vector<std::string> derived_otherwise(const ModelSpec& spec) {
  std::vector<std::string> found;
  if (spec.positions == PositionKind::kAlibi) {
    for (const AttentionRole role : spec.roles()) {
      if (role != AttentionRole::kCross) {
        compare_slopes(spec, role, found);
      }
    }
  }
  return found;
}

std::vector<std::string> misread_by_loaders(const ModelSpec& spec, const Json& config) {
  return has_alibi_names(config) ? std::vector<std::string>() : derived_otherwise(spec);
}

}  // namespace regroup
