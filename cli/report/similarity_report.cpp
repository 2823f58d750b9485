#include <fmt/format.h>

#include "cli/measure/similarity.h"
#include "cli/terminal/text.h"

namespace regroup {
namespace {

// The mean over pairs of different heads in one group.
double within_groups(const std::vector<double>& matrix, const LayerSimilarity& layer) {
  double sum = 0.0, pairs = 0.0;
  for (std::size_t i = 0; i < layer.heads; ++i) {
    for (std::size_t j = i / layer.group * layer.group; j < i; ++j) {
      sum += matrix[i * layer.heads + j];
      pairs += 1.0;
    }
  }
  return pairs > 0.0 ? sum / pairs : 1.0;
}

Json square(const std::vector<double>& matrix, std::size_t heads) {
  Json rows = Json::array();
  for (std::size_t i = 0; i < heads; ++i) {
    const auto row = matrix.begin() + static_cast<std::ptrdiff_t>(i * heads);
    rows.push_back(std::vector<double>(row, row + static_cast<std::ptrdiff_t>(heads)));
  }
  return rows;
}

Json likeness_json(const LikenessOfHeads& likeness, const LayerSimilarity& layer) {
  return {{"raw", square(likeness.raw, layer.heads)},
          {"aligned", square(likeness.aligned, layer.heads)},
          {"raw_within_groups", within_groups(likeness.raw, layer)},
          {"aligned_within_groups", within_groups(likeness.aligned, layer)}};
}

Json kept_json(const EnergyKept& kept) {
  return {{"key_energy_kept", kept.keys}, {"value_energy_kept", kept.values}};
}

}  // namespace

Table similarity_table(const std::vector<LayerSimilarity>& layers) {
  Table table(/*keys=*/2);
  table.add_column("attention", Table::Align::kLeft);
  for (const char* title : {"layer", "kv heads", "K raw", "K aligned", "V raw", "V aligned"}) {
    table.add_column(title, Table::Align::kRight);
  }
  const bool measured = !layers.empty() && layers.front().mean;
  for (const char* title : {"mean keeps K", "V", "lowrank keeps K", "V"}) {
    if (measured) {
      table.add_column(title, Table::Align::kRight);
    }
  }
  const auto percent = [](double value) { return fmt::format("{:.0f} %", 100 * value); };
  for (const LayerSimilarity& layer : layers) {
    std::vector<std::string> cells{std::string(name_of(layer.role)),
                                   std::to_string(layer.layer),
                                   fmt::format("{} -> {}", layer.heads, layer.heads / layer.group),
                                   two_decimals(within_groups(layer.keys.raw, layer)),
                                   two_decimals(within_groups(layer.keys.aligned, layer)),
                                   two_decimals(within_groups(layer.values.raw, layer)),
                                   two_decimals(within_groups(layer.values.aligned, layer))};
    for (const std::optional<EnergyKept>& kept : {layer.mean, layer.lowrank}) {
      if (kept) {
        cells.push_back(percent(kept->keys));
        cells.push_back(percent(kept->values));
      }
    }
    table.add_row(std::move(cells));
  }
  return table;
}

Json similarity_json(const std::vector<LayerSimilarity>& layers) {
  Json list = Json::array();
  for (const LayerSimilarity& layer : layers) {
    list.push_back({{"attention", name_of(layer.role)},
                    {"layer", layer.layer},
                    {"kv_heads", layer.heads},
                    {"grouped_kv_heads", layer.heads / layer.group},
                    {"keys", likeness_json(layer.keys, layer)},
                    {"values", likeness_json(layer.values, layer)}});
    if (layer.mean && layer.lowrank) {
      list.back()["mean"] = kept_json(*layer.mean);
      list.back()["lowrank"] = kept_json(*layer.lowrank);
    }
  }
  return list;
}

std::vector<HeatMap> similarity_maps(const std::vector<LayerSimilarity>& layers) {
  std::vector<HeatMap> maps;
  for (const LayerSimilarity& layer : layers) {
    const auto add = [&](const char* what, const std::vector<double>& values) {
      maps.push_back({fmt::format("{} layer {}, {}", name_of(layer.role), layer.layer, what),
                      layer.heads, values, layer.group});
    };
    add("keys as they are", layer.keys.raw);
    add("keys aligned", layer.keys.aligned);
    add("values as they are", layer.values.raw);
    add("values aligned", layer.values.aligned);
  }
  return maps;
}

}  // namespace regroup
