// Measurements of each layer of a conversion, as reported and as recorded in the result.
#pragma once

#include <string>
#include <vector>

#include "converter/pooling/attention_pooler.h"
#include "formats/json/json.h"
#include "formats/record/conversion_record.h"

namespace regroup {

/// The fraction of a layer's energy that its groups keep, weighted by their shares.
double keys_kept(const LayerReport& layer);
double values_kept(const LayerReport& layer);

/// Keys: "attention" and "layer"; "key_energy_kept" and "value_energy_kept" if groups were measured
/// over a text; "output_error_before_refit", "output_error_after_refit" and "refit_learning_rate"
/// if it was refitted.
Json json_of(const LayerReport& layer);

/// `config_text` with the records of all measured layers as "layers" of its "regroup" block, to six
/// digits; unchanged if there are none.
std::string config_with_layers(const std::string& config_text,
                               const std::vector<LayerReport>& layers);

}  // namespace regroup
