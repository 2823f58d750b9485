// What `regroup inspect --similarity` measures of heads, and how it is shown.
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

struct SimilarityQuestion {
  bool asked = false;
  std::vector<std::int64_t> kv_heads;  ///< to which heads are to be grouped; empty: half of them,
                                       ///< of odd numbers the largest part
  std::string calibration;  ///< statistics of the model; empty: its norms stand in, over which what
                            ///< heads would keep is not told
};

/// Raw and aligned likeness of heads, -1 to 1 (converter/pooling/solvers/head_similarity.h).
struct LikenessOfHeads {
  std::vector<double> raw, aligned;  ///< [N, N]
};

/// The part of the energy that neighbours keep when they share a head.
struct EnergyKept {
  double keys = 0.0, values = 0.0;
};

struct LayerSimilarity {
  AttentionRole role = AttentionRole::kSelf;
  std::size_t layer = 0;
  std::size_t heads = 0, group = 1;  ///< kv heads, and how many of them share one
  LikenessOfHeads keys, values;
  std::optional<EnergyKept> mean, lowrank;  ///< over a text's statistics
};

/// Reads one layer at a time. Throws kUsage for heads that cannot be compared and in a build
/// without LibTorch.
std::vector<LayerSimilarity> measure_similarity(const std::string& path, const std::string& layout,
                                                const SimilarityQuestion& question,
                                                const Console& console);

/// A row for each layer: means over pairs of heads that share one.
Table similarity_table(const std::vector<LayerSimilarity>& layers);
Json similarity_json(const std::vector<LayerSimilarity>& layers);
std::vector<HeatMap> similarity_maps(const std::vector<LayerSimilarity>& layers);

}  // namespace regroup
