#include "converter/provenance.h"

#include <algorithm>

#include <fmt/ranges.h>

#include "formats/json.h"
#include "formats/version.h"

namespace regroup {
namespace {

template <typename T>
bool all_equal(const std::vector<T>& values) {
  return std::adjacent_find(values.begin(), values.end(), std::not_equal_to<>()) == values.end();
}

std::string slopes_json(const ModelSpec& spec) {
  const auto slopes = alibi_slopes_per_layer(spec);
  return all_equal(slopes) ? nlohmann::json(slopes.front()).dump() : nlohmann::json(slopes).dump();
}

// `indent` columns of what config.json itself uses.
std::string regroup_block(const ModelSpec& spec, const Provenance& facts) {
  const auto quoted = [](const std::string& text) { return nlohmann::json(text).dump(); };
  std::string block = fmt::format(
      "{{\n    \"version\": {},\n    \"source_kv_heads\": {},\n    \"kv_heads\": {},\n"
      "    \"pool\": {},\n    \"grouping\": {},\n    \"query_order\": null",
      quoted(std::string(kVersion)), per_layer_json(facts.source_kv_heads),
      per_layer_json(facts.kv_heads), quoted(facts.pool), quoted(facts.grouping));
  if (spec.positions == PositionKind::kAlibi) {
    block += fmt::format(",\n    \"alibi\": {{\"bias_max\": {}, \"slopes\": {}}}",
                         json_number(spec.alibi.bias_max), slopes_json(spec));
  }
  return block + "\n  }";
}

}  // namespace

std::string per_layer_json(const std::vector<std::int64_t>& values) {
  return all_equal(values) && !values.empty() ? std::to_string(values.front())
                                              : fmt::format("[{}]", fmt::join(values, ", "));
}

std::string config_with_provenance(const std::string& config_text, const ModelSpec& spec,
                                   const Provenance& facts) {
  std::string text = config_text;
  const bool all_heads = std::all_of(facts.kv_heads.begin(), facts.kv_heads.end(),
                                     [&](std::int64_t heads) { return heads == spec.query_heads; });
  // A family whose loaders know no such key gets it only where it says something.
  if (spec.loaders_read_kv_heads || !all_heads) {
    text = with_member(text, spec.kv_heads_key, per_layer_json(facts.kv_heads));
  }
  if (!spec.multi_query_key.empty()) {
    const bool multi_query = std::all_of(facts.kv_heads.begin(), facts.kv_heads.end(),
                                         [](std::int64_t heads) { return heads == 1; });
    text = with_member(text, {spec.multi_query_key}, multi_query ? "true" : "false");
  }
  return with_member(text, {"regroup"}, regroup_block(spec, facts));
}

std::map<std::string, std::string> metadata_with_provenance(
    std::map<std::string, std::string> metadata, const ModelSpec& spec, const Provenance& facts) {
  metadata["regroup.version"] = kVersion;
  metadata["regroup.architecture"] = spec.architecture;
  metadata["regroup.query_heads"] = std::to_string(spec.query_heads);
  metadata["regroup.head_dim"] = std::to_string(spec.head_dim);
  metadata["regroup.source_kv_heads"] = per_layer_json(facts.source_kv_heads);
  metadata["regroup.kv_heads"] = per_layer_json(facts.kv_heads);
  metadata["regroup.pool"] = facts.pool;
  metadata["regroup.grouping"] = facts.grouping;
  if (spec.positions == PositionKind::kAlibi) {
    metadata["regroup.alibi_bias_max"] = json_number(spec.alibi.bias_max);
    metadata["regroup.alibi_slopes"] = slopes_json(spec);
  }
  return metadata;
}

}  // namespace regroup
