// What a conversion measured of each layer: as it is reported, and recorded in the result.
#pragma once

#include <string>
#include <vector>

#include "converter/pooling/attention_pooler.h"
#include "formats/json/json.h"

namespace regroup {

/// The part of a layer's energy that its groups keep, each counted by its share in it.
double keys_kept(const LayerReport& layer);
double values_kept(const LayerReport& layer);

/// "attention", "layer", where groups were measured over a text "key_energy_kept" and
/// "value_energy_kept", where it was refitted "output_error_before_refit" and
/// "output_error_after_refit".
Json json_of(const LayerReport& layer);

/// `config_text` with those of all measured layers as "layers" of its "regroup" block, to six
/// digits; unchanged where none was.
std::string config_with_layers(const std::string& config_text,
                               const std::vector<LayerReport>& layers);

}  // namespace regroup
