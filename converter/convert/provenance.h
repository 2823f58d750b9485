// The record of a conversion as it is written into the result, and the order of heads read from
// one.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "converter/convert/attention_pooler.h"
#include "converter/heads/heads.h"
#include "formats/base/json.h"
#include "formats/model/conversion_record.h"
#include "formats/model/model.h"
#include "formats/spec/config_writers.h"
#include "formats/spec/model_spec.h"

namespace regroup {

// The record of a conversion in its result: the "regroup" block of config.json and the same facts
// as safetensors metadata, so that a single weight file is self-describing.

/// The facts of one conversion: the specs of the source, of the result with its remaining kv heads,
/// and of the result as stored.
struct Provenance {
  const ModelSpec& source;
  const ModelSpec& grouped;
  const ModelSpec& target;
  std::string pool;
  std::string grouping;
  HeadOrder order = {};  ///< of the source's heads
  Json history = {};     ///< ConversionRecord::steps() of the source
  /// Further facts about source and pooling, as keys and JSON texts.
  std::vector<std::pair<std::string, std::string>> more = {};
};

/// `config_text` with the target family's kv-head keys and the "regroup" block; every other byte is
/// unchanged. In ALiBi models the block records one slope per query head, in double.
std::string config_with_provenance(const std::string& config_text, const Provenance& facts);

/// The source's metadata with the same facts as "regroup.*" strings, which replace those of an
/// earlier conversion.
std::map<std::string, std::string> metadata_with_provenance(
    std::map<std::string, std::string> metadata, const Provenance& facts);

// Measurements of each layer of a conversion, as reported and as recorded in the result.

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

// Reads the head order from the record of a converted model.

/// The order in `recorded`, the "query_order" of a result's record: null, or the permutation of
/// query heads per layer, or an object of these by role. Throws kBadInput, naming `where`, unless
/// each permutation moves whole kv heads of `source` with their queries.
HeadOrder recorded_order(const Json& recorded, const ModelSpec& source, const std::string& where);

}  // namespace regroup
