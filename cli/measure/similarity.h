// Measures and shows the similarity of heads for `regroup inspect --similarity`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/page/heat_map.h"
#include "cli/terminal/console.h"
#include "cli/terminal/table.h"
#include "formats/json/json.h"
#include "formats/spec/model_spec.h"

namespace regroup {

struct SimilarityOptions {
  bool enabled = false;
  std::vector<std::int64_t> kv_heads;  ///< to group heads into; empty: half, or for odd numbers the
                                       ///< largest proper divisor
  std::string calibration;  ///< statistics of the model; empty: the weights of its norms are used,
                            ///< and the energy that heads would keep is not measured
};

/// Raw and aligned similarity of heads, -1 to 1 (converter/pooling/solvers/head_similarity.h).
struct LikenessOfHeads {
  std::vector<double> raw, aligned;  ///< [N, N]
};

/// The share of the energy that neighbours keep if they share a head; 1 is all of it.
struct EnergyKept {
  double keys = 0.0, values = 0.0;
};

struct LayerSimilarity {
  AttentionRole role = AttentionRole::kSelf;
  std::size_t layer = 0;
  std::size_t heads = 0, group = 1;  ///< kv heads, and how many of them share one
  LikenessOfHeads keys, values;
  std::optional<EnergyKept> mean, lowrank;  ///< over the statistics of a text; none without them
};

/// Reads one layer at a time. Throws kUsage if no layer has heads to share and in a build without
/// LibTorch.
std::vector<LayerSimilarity> measure_similarity(const std::string& path, const std::string& layout,
                                                const SimilarityOptions& options,
                                                const Console& console);

/// A row for each layer, with means over the pairs of heads that share one.
Table similarity_table(const std::vector<LayerSimilarity>& layers);
Json similarity_json(const std::vector<LayerSimilarity>& layers);
std::vector<HeatMap> similarity_maps(const std::vector<LayerSimilarity>& layers);

}  // namespace regroup
