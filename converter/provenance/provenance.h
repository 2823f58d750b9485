// What a converted checkpoint says of itself: the "regroup" block of config.json and the same facts
// as safetensors metadata, so that one weight file explains itself.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "converter/heads/head_order.h"
#include "formats/families/kv_heads_config.h"
#include "formats/spec/model_spec.h"

namespace regroup {

/// What fingerprint_of() gives for the source.
inline constexpr const char* kSourceFingerprintKey = "source_fingerprint";

/// The facts of one conversion: the specs of source and result, the latter with the kv heads that
/// are left, and as stored.
struct Provenance {
  const ModelSpec& source;
  const ModelSpec& grouped;
  const ModelSpec& target;
  std::string pool;
  std::string grouping;
  HeadOrder order = {};  ///< in which the source's heads stand
  /// More about source and pooling, as keys and JSON texts.
  std::vector<std::pair<std::string, std::string>> more = {};
};

/// `config_text` with the target family's kv-head keys set and the "regroup" block written; every
/// other byte as it was. In ALiBi models the block records one slope per query head, in double.
std::string config_with_provenance(const std::string& config_text, const Provenance& facts);

/// Whether a metadata key tells of a conversion: "regroup.pool" and the like, but not what a GGUF
/// file records of the directory that it was made of.
bool is_conversion_fact(std::string_view key);

/// The same facts as "regroup.*" strings, added to the source's own metadata in place of those of
/// an earlier conversion.
std::map<std::string, std::string> metadata_with_provenance(
    std::map<std::string, std::string> metadata, const Provenance& facts);

}  // namespace regroup
