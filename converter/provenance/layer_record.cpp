#include "converter/provenance/layer_record.h"

#include <fmt/format.h>

namespace regroup {
namespace {

double energy_kept(const LayerReport& layer, double GroupReport::* kept,
                   double GroupReport::* share) {
  double lost = 0.0;
  for (const GroupReport& group : layer.groups) {
    lost += group.*share * (1.0 - group.*kept);
  }
  return 1.0 - lost;
}

// Rounds numbers to six digits, because further digits differ between machines.
std::string short_text(const Json& layer) {
  Json rounded = layer;
  for (auto& [key, value] : rounded.items()) {
    if (value.is_number_float()) {
      value = Json::parse(fmt::format("{:.6g}", value.get<double>()), nullptr, false);
    }
  }
  return rounded.dump();
}

}  // namespace

double keys_kept(const LayerReport& layer) {
  return energy_kept(layer, &GroupReport::key_energy, &GroupReport::key_share);
}

double values_kept(const LayerReport& layer) {
  return energy_kept(layer, &GroupReport::value_energy, &GroupReport::value_share);
}

Json json_of(const LayerReport& layer) {
  Json json{{"attention", name_of(layer.role)}, {"layer", layer.layer}};
  if (!layer.groups.empty() && layer.over_text) {
    json["key_energy_kept"] = keys_kept(layer);
    json["value_energy_kept"] = values_kept(layer);
  }
  if (layer.refinement) {
    json["output_error_before_refit"] = layer.refinement->error_before;
    json["output_error_after_refit"] = layer.refinement->error_after;
    json["refit_learning_rate"] = layer.refinement->learning_rate;
  }
  return json;
}

std::string config_with_layers(const std::string& config_text,
                               const std::vector<LayerReport>& layers) {
  std::string lines;
  for (const LayerReport& layer : layers) {
    if (!layer.over_text && !layer.refinement) {
      continue;
    }
    lines += fmt::format("{}\n      {}", lines.empty() ? "" : ",", short_text(json_of(layer)));
  }
  return lines.empty()
             ? config_text
             : with_member(config_text, {kRecordKey, kLayersKey}, "[" + lines + "\n    ]");
}

}  // namespace regroup
