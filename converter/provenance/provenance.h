// The record of a conversion in its result: the "regroup" block of config.json and the same facts
// as safetensors metadata, so that a single weight file is self-describing.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "converter/heads/head_order.h"
#include "formats/config/kv_heads_config.h"
#include "formats/record/conversion_record.h"
#include "formats/spec/model_spec.h"

namespace regroup {

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

}  // namespace regroup
